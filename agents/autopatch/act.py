"""Act: from an approved model profile to a candidate in the checkout's own conventions.

`write` is pure: profile and tree in, file texts out. `act` adds the one job that is sent, `style`, so that the target's
own ruff formats what is new.
"""

from __future__ import annotations

from collections.abc import Sequence

from agents.autopatch.convergence_files import add_mini_model
from agents.autopatch.forward_cut import Unpatchable
from agents.autopatch.layout import README, TEST_MONKEY_PATCH, TEST_UTILS, Layout, read_layout
from agents.autopatch.model_candidate import ModelCandidate, Repair
from agents.autopatch.model_file import extra_outputs, model_file
from agents.autopatch.model_profile import ModelProfile
from agents.autopatch.modify import modify
from agents.autopatch.narrow import narrowed, without_fields
from agents.autopatch.patch_function import patch_function
from agents.autopatch.patch_plan import Plan, patch_plan
from agents.autopatch.pull_text import commit_message, pull_body, pull_title
from agents.autopatch.readme import add_row
from agents.autopatch.registration import (
    add_exports,
    add_norm_variant,
    add_output_class,
    add_patch_function,
    needs_output_class,
    register,
)
from agents.autopatch.tests_files import INSTANCE, add_instance_test, add_revert_helper
from agents.autopatch.vision import only_vision
from agents.conventions import Conventions, detect
from agents.conventions.edits import AnchorMissing
from agents.formatting import ActFailed, format_candidate
from agents.ports import Bench, Tree
from agents.profiles import PlannedFile

WHY = {
    "output_classes.py": "the model's own output class with a token accuracy",
    "transformers/model/": "lce_forward, from the model's own forward",
    "monkey_patch.py": "the function, its table entry, or its instance test",
    "transformers/__init__.py": "exports",
    "rms_norm.py": "a norm class that computes what this model's does",
    "test/utils.py": "revert helper",
    "test/convergence/": "mini model and tolerances",
    "README.md": "row in the table of patches",
}
MULTIMODAL = (
    "create_processor builds each model's processor from its tokenizer's files, its chat template and its image settings "
    "(test/resources/fake_configs), none of which transformers has"
)


async def act(
    profile: ModelProfile,
    tree: Tree,
    bench: Bench,
    *,
    checkout: str = ".",
    repairs: Sequence[Repair] = (),
) -> ModelCandidate:
    """The candidate for an approved profile, formatted by the target's rules.

    checkout: the runner's path of the target checkout. repairs: changes of the plan after failed checks. Raises ActFailed when the model is there already, its forward can't be
    followed, or the files can't be formatted; AnchorMissing when an existing file lacks a place; NotAKernelLibrary.
    """
    candidate = _candidate(profile, tree, repairs)
    files, unclean = await format_candidate(
        candidate.files,
        candidate.created,
        tree,
        bench,
        job_id=f"act-{profile.sha256()[:12]}-{len(repairs)}-style",
        checkout=checkout,
        ruff=candidate.ruff,
    )
    return candidate.model_copy(update={"files": files, "unclean_before": unclean})


def _candidate(profile: ModelProfile, tree: Tree, repairs: Sequence[Repair] = ()) -> ModelCandidate:
    return modify(profile, tree, repairs) if profile.mode == "modify" else write(profile, tree, repairs)


def planned_files(profile: ModelProfile, tree: Tree) -> list[PlannedFile]:
    """The files that `act` will touch, for the profile that a person approves. Raises as `write` does."""
    candidate = _candidate(profile, tree)
    return [
        PlannedFile(path=path, action="create" if path in candidate.created else "edit", why=_why(path))
        for path in candidate.files
    ]


def _why(path: str) -> str:
    """The reason of the first part in WHY that the path has."""
    return next((why for part, why in WHY.items() if part in path), "needed by this model")


def write(profile: ModelProfile, tree: Tree, repairs: Sequence[Repair] = ()) -> ModelCandidate:
    """The candidate before formatting. Pure. Raises ActFailed, AnchorMissing, NotAKernelLibrary."""
    approved = profile.sha256()
    profile = narrowed(profile, repairs)
    conventions = detect(tree)
    layout = without_fields(read_layout(tree, conventions), repairs)
    if profile.model_type in layout.registered:
        raise ActFailed(
            f"This checkout supports {profile.model_type} already, by {layout.registered[profile.model_type]}; "
            f"to change it: `/liger autopatch {profile.model_type} --add …`."
        )
    if "shift_labels" not in layout.loss_parameters:
        raise ActFailed(
            "This checkout is too old: it has no LigerForCausalLMLoss that takes shift_labels, from which lce_forward is made "
            "(Liger-Kernel has one since 0.5.6)."
        )
    try:
        plan = patch_plan(profile, layout)
        new = {layout.path("transformers", "model", f"{profile.identifier}.py"): model_file(profile, layout)}
        function = patch_function(profile, plan, layout)
    except Unpatchable as error:
        raise ActFailed(f"No patch can be made for {profile.model_type}: {error}.") from error
    for path in new:
        if tree.read(path) is not None:
            raise ActFailed(f"{path} already exists in the checkout, so I won't write over it.")
    edited, beyond, left_out = _edited(profile, plan, layout, conventions, tree, function)
    package = layout.package
    return ModelCandidate(
        files={**new, **edited},
        created=list(new),
        beyond=beyond,
        left_out=left_out,
        originals={path: tree.read(path) or "" for path in edited},
        repairs=list(repairs),
        function=plan.function,
        flags={
            flag.name: flag.default
            for flag in plan.flags
            if flag.why_not is None and flag.name not in only_vision(plan.norms)
        },
        unsupported=[flag.name for flag in plan.flags if flag.why_not],
        tests=[f"{TEST_MONKEY_PATCH}::{INSTANCE}{profile.identifier}"],
        convergence=[path for path in layout.convergence if path in edited],
        imports=[
            f"{package}.transformers:{plan.function}",
            f"{package}.transformers.model.{profile.identifier}:lce_forward",
        ],
        ruff=conventions.ruff_requirement,
        commit_message=commit_message(profile, plan, repairs),
        pull_title=pull_title(profile),
        pull_body=pull_body(profile, plan, conventions, beyond, left_out, repairs, approved),
    )


def _edited(
    profile: ModelProfile, plan: Plan, layout: Layout, conventions: Conventions, tree: Tree, function: str
) -> tuple[dict[str, str], list[str], list[str]]:
    """Edited files, what of them is beyond the usual thirteen, and the usual ones that were left out."""
    files: dict[str, str] = {}
    beyond: list[str] = []
    left_out: list[str] = []

    def text(path: str) -> str:
        found = files.get(path) or tree.read(path)
        if found is None:
            raise ActFailed(f"{path} is gone from the checkout since the profile was made.")
        return found

    patch = layout.monkey_patch
    files[patch] = add_patch_function(text(patch), function, profile, patch)
    files[patch] = register(files[patch], profile, plan, patch)
    init = layout.path("transformers", "__init__.py")
    files[init] = add_exports(text(init), plan, conventions, init)
    if needs_output_class(profile, layout):
        path = layout.path("transformers", "model", "output_classes.py")
        files[path] = add_output_class(text(path), profile, extra_outputs(layout), path)
    for norm in plan.norms:
        if norm.new_variant:
            path = layout.path("transformers", "rms_norm.py")
            files[path] = add_norm_variant(text(path), norm, path)
            beyond.append(
                f"{path}: {norm.liger_class}, because no existing variant computes what {norm.norm.name} does"
            )
    files[TEST_MONKEY_PATCH] = add_instance_test(
        text(TEST_MONKEY_PATCH), profile, plan, layout, TEST_MONKEY_PATCH
    )
    files[TEST_UTILS] = add_revert_helper(text(TEST_UTILS), profile, plan, TEST_UTILS)
    for path in layout.convergence:
        if profile.bf16_error and "/bf16/" in path:
            left_out.append(f"{path}: it casts the whole model, which then doesn't run: {profile.bf16_error}")
            continue
        try:
            files[path] = add_mini_model(text(path), profile, plan, path, conventions.line_length)
        except AnchorMissing as missing:
            left_out.append(f"{path}: it has no {missing.looked_for}")
    conditional = [
        path
        for path in layout.convergence
        if f'model_name == "mini_{profile.identifier}"' in files.get(path, "")
    ]
    if conditional:
        beyond.append("run_mini_model of the convergence tests: rope or swiglu is not asked of this model")
    if profile.vision:
        left_out += [f"{path}: {MULTIMODAL}" for path in layout.multimodal]
    row = add_row(text(README), profile, plan) if tree.read(README) is not None else None
    if row is None:
        left_out.append(f"{README}: it has no table of patches, or the row already")
    else:
        files[README] = row
    return files, beyond, left_out
