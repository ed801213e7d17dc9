"""Act: from an approved profile to a candidate, a set of file edits in the target's own conventions.

The stored profile is the only input about the op: its traced graph is derived and printed again, which gives the same
kernel every time. The one job sent is `style`, so that the target's own ruff formats what is new.
"""

from __future__ import annotations

from agents.candidate import Candidate
from agents.conventions import Conventions, detect
from agents.conventions.edits import add_function, add_import, add_to_collection
from agents.dev.analysis import derivation_of
from agents.dev.benchmark_file import benchmark_file
from agents.dev.neighbours import neighbours
from agents.dev.pull_text import commit_message, pull_body, pull_title
from agents.dev.reference_in_test import reference_in_test
from agents.dev.signature import Signature, axis_multiples, check_identifier
from agents.dev.skeletons import function_import, functional_code, module_file
from agents.dev.unit_test_file import unit_test_file
from agents.formatting import ActFailed, format_candidate
from agents.ports import Bench, Tree
from agents.profiles import KernelProfile
from kernels.derivation import Derivation
from kernels.module_style import ModuleStyle
from kernels.printer import call_order, kernel_names, print_module
from kernels.traced import TracedOp
from runners.protocol import KernelTarget


async def act(profile: KernelProfile, tree: Tree, bench: Bench, *, checkout: str = ".") -> Candidate:
    """The candidate for an approved profile.

    checkout: the runner's path of the target checkout, whose lint rules the style job applies.
    Raises ActFailed when the checkout has gained the op since, or the new files can't be formatted; AnchorMissing when an
    existing file lacks the place for an export; NotAKernelLibrary; Unsupported when the derivation's rules changed since.
    """
    conventions = detect(tree)
    _, derivation = derivation_of(profile)
    candidate = write(profile, derivation, conventions, tree)
    files, unclean = await format_candidate(
        candidate.files,
        candidate.created,
        tree,
        bench,
        job_id=f"act-{profile.sha256()[:12]}-style",
        checkout=checkout,
        ruff=candidate.ruff,
    )
    return candidate.model_copy(update={"files": files, "unclean_before": unclean})


def write(profile: KernelProfile, derivation: Derivation, conventions: Conventions, tree: Tree) -> Candidate:
    """The candidate before formatting. Pure."""
    style = module_style(profile, conventions)
    order = call_order(derivation)
    signature = Signature.of(profile, order, derivation.outputs)
    created = _created(profile, derivation, conventions, signature, style)
    for path in created:
        if tree.read(path) is not None:
            raise ActFailed(f"{path} already exists in the checkout, so I won't write over it.")
    edited = _edited(profile, conventions, signature, tree)
    op = profile.operation_name
    ops_path, test_path = conventions.path("ops", f"{op}.py"), f"test/transformers/test_{op}.py"
    package = conventions.package
    imports = [
        f"{package}.ops.{op}:{profile.function_class_name}",
        f"{package}.transformers.{op}:{profile.module_class_name}",
    ]
    imports += [
        f"{package}.transformers:{profile.module_class_name}",
        f"{package}.transformers.functional:{profile.functional_name}",
    ]
    if conventions.ops_import == "package":
        imports.append(f"{package}.ops:{profile.function_class_name}")
    return Candidate(
        files={**created, **edited},
        created=list(created),
        target=KernelTarget(
            op=profile.op,
            module=f"{package}.ops.{op}",
            function_class=profile.function_class_name,
            kernels=kernel_names(derivation, style),
            call_order=order,
            path=ops_path,
            multiples={axis: m for axis, m in _multiples(profile).items() if m > 1},
            rtol={dtype: values["rtol"] for dtype, values in profile.tolerances.items() if "rtol" in values},
        ),
        tests=[test_path],
        neighbours=neighbours(tree, conventions, exclude=test_path),
        imports=imports,
        ruff=conventions.ruff_requirement,
        commit_message=commit_message(profile),
        pull_title=pull_title(profile),
        pull_body=pull_body(profile, derivation, conventions),
    )


def module_style(profile: KernelProfile, conventions: Conventions) -> ModuleStyle:
    """How the ops module of this profile looks in this checkout."""
    op = check_identifier(profile.operation_name)
    utils = conventions.calculate_settings and conventions.ensure_contiguous
    return ModuleStyle(
        op_name=op,
        function_class=check_identifier(profile.function_class_name),
        forward_wrapper=f"{op}_forward",
        backward_wrapper=f"{op}_backward",
        forward_kernel=f"_{op}_forward_kernel",
        backward_kernel=f"_{op}_backward_kernel",
        utils_module=f"{conventions.package}.ops.utils" if utils else None,
        device_context=conventions.device_context,
    )


def _created(
    profile: KernelProfile,
    derivation: Derivation,
    conventions: Conventions,
    signature: Signature,
    style: ModuleStyle,
) -> dict[str, str]:
    op = profile.operation_name
    stem = profile.module_class_name.removeprefix("Liger")
    reference = reference_in_test(
        profile.op, f"Torch{stem}" if profile.op.kind == "module" else f"torch_{op}"
    )
    return {
        conventions.path("ops", f"{op}.py"): print_module(derivation, style),
        conventions.path("transformers", f"{op}.py"): module_file(profile, signature, conventions),
        f"test/transformers/test_{op}.py": unit_test_file(
            profile, signature, conventions, reference, _multiples(profile)
        ),
        f"benchmark/scripts/benchmark_{op}.py": benchmark_file(profile, signature, conventions, reference),
    }


def _multiples(profile: KernelProfile) -> dict[str, int]:
    return axis_multiples(TracedOp.model_validate(profile.traced))


def _edited(
    profile: KernelProfile, conventions: Conventions, signature: Signature, tree: Tree
) -> dict[str, str]:
    op, width = profile.operation_name, conventions.line_length
    edited: dict[str, str] = {}
    if conventions.ops_import == "package":
        path = conventions.path("ops", "__init__.py")
        names = [profile.function_class_name]
        names += [f"{op}_backward", f"{op}_forward"] if conventions.exports_wrappers else []
        text = _existing(tree, path)
        for name in names:
            text = add_import(
                text, f"{conventions.package}.ops.{op}", name, path=path, noqa=True, line_length=width
            )
        edited[path] = text
    path = conventions.path("transformers", "__init__.py")
    module, name = f"{conventions.package}.transformers.{op}", profile.module_class_name
    text = add_import(_existing(tree, path), module, name, path=path, noqa=True, line_length=width)
    edited[path] = add_to_collection(text, "__all__", name, path=path)
    path = conventions.path("transformers", "functional.py")
    text = add_import(
        _existing(tree, path),
        function_import(profile, conventions),
        profile.function_class_name,
        path=path,
        line_length=width,
    )
    relative = conventions.existing(profile.closest_existing_kernel)
    edited[path] = add_function(
        text, functional_code(profile, signature), path=path, after=relative.functionals if relative else ()
    )
    return edited


def _existing(tree: Tree, path: str) -> str:
    text = tree.read(path)
    if text is None:
        raise ActFailed(f"{path} is gone from the checkout since the profile was made.")
    return text
