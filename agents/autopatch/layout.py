"""What a checkout offers to a model patch, and how its newest patches are written; read, never run. Pure.

Liger-Kernel changed between releases: output classes with a token accuracy came in 0.6.4, the PEFT-aware head in 0.5.10,
`row_mode` in 0.6, experts of transformers v5 in 0.7. Each is a field here, so that no version number decides anything.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from agents.conventions import Conventions
from agents.conventions.reading import Outline, outline
from agents.ports import Tree
from kernels.syntax import syntax_tree

CONVERGENCE = "test/convergence"
TEST_MONKEY_PATCH = "test/transformers/test_monkey_patch.py"
TEST_UTILS = "test/utils.py"
README = "README.md"


@dataclass(frozen=True)
class NormVariant:
    """An RMSNorm class of the checkout with the defaults that its `__init__` gives."""

    name: str
    module: str
    casting_mode: str
    offset: float
    in_place: bool
    init_fn: str
    size_parameter: str


@dataclass(frozen=True)
class Layout:
    """The places and helpers of one checkout.

    patch_imports: names that monkey_patch.py imports at its top, with their modules · classes: Liger class -> module ·
    convergence: test files, bf16 and fp32, text models first · unpacked: names that the fused loss's result is unpacked into ·
    loss_filters: the fused loss ignores keyword arguments that it doesn't know.
    """

    package: str
    source_root: str
    monkey_patch: str
    patch_names: dict[str, str]
    patch_functions: Outline
    registered: dict[str, str]
    classes: dict[str, str]
    norms: tuple[NormVariant, ...]
    output_classes: tuple[str, ...]
    has_output_classes: bool
    trainable_head: bool
    unpacked: tuple[str, ...]
    loss_filters: bool
    loss_parameters: tuple[str, ...]
    v5_flag: bool
    convergence: tuple[str, ...]
    multimodal: tuple[str, ...] = field(default=())

    def path(self, *parts: str) -> str:
        return "/".join((self.source_root, *parts))

    def module(self, name: str) -> str:
        """Import path of a module below the package's transformers folder."""
        return f"{self.package}.transformers.{name}"

    def helper_takes(self, helper: str, parameter: str) -> bool:
        found = self.patch_functions.functions.get(helper)
        return found is not None and parameter in found.parameters


def read_layout(tree: Tree, conventions: Conventions) -> Layout:
    """Read everything that the writers need to know about this checkout."""
    root, package = conventions.source_root, conventions.package
    patch_text = tree.read(f"{root}/transformers/monkey_patch.py") or ""
    patch = outline(patch_text)
    outputs = tree.read(f"{root}/transformers/model/output_classes.py")
    losses = outline(tree.read(f"{root}/transformers/model/loss_utils.py"))
    llama = outline(tree.read(f"{root}/transformers/model/llama.py"))
    fused = losses.functions.get("LigerForCausalLMLoss")
    functional = outline(tree.read(f"{root}/transformers/functional.py")).functions
    accepted = functional.get("liger_fused_linear_cross_entropy")
    parameters = (*(fused.parameters if fused else ()), *(accepted.parameters if accepted else ()))
    tests = [path for path in tree.files(f"{CONVERGENCE}/*/test_mini_models*.py") if "liger_moe" not in path]
    return Layout(
        package=package,
        source_root=root,
        monkey_patch=f"{root}/transformers/monkey_patch.py",
        patch_names={found.name: found.module for found in patch.imports if found.name and not found.nested},
        patch_functions=patch,
        registered=_registered(patch_text),
        classes=_classes(tree, root, package),
        norms=tuple(_norms(tree, root, package)),
        output_classes=tuple(outline(outputs).classes) + tuple(_guarded_classes(outputs)),
        has_output_classes=outputs is not None,
        trainable_head="lce_maybe_trainable_lm_head" in llama.functions,
        unpacked=_unpacked(tree, root),
        loss_filters="inspect.signature" in (tree.read(f"{root}/transformers/model/loss_utils.py") or ""),
        loss_parameters=parameters,
        v5_flag="IS_TRANSFORMERS_V5_OR_LATER" in patch_text,
        convergence=tuple(path for path in tests if "multimodal" not in path),
        multimodal=tuple(path for path in tests if "multimodal" in path),
    )


def _unpacked(tree: Tree, root: str) -> tuple[str, ...]:
    """The names that siblings unpack the fused loss into; empty where it returns the loss alone."""
    text = tree.read(f"{root}/transformers/model/llama.py") or tree.read(
        f"{root}/transformers/model/qwen2.py"
    )
    for node in ast.walk(_parsed(text or "")):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Tuple)
            and ast.unparse(node.value).startswith("unpack_cross_entropy_result(")
        ):
            return tuple(ast.unparse(name) for name in node.targets[0].elts)
    return ()


def _registered(text: str) -> dict[str, str]:
    """model_type -> name of its function, from MODEL_TYPE_TO_APPLY_LIGER_FN."""
    for node in _parsed(text).body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Dict)
            and ast.unparse(node.targets[0]) == "MODEL_TYPE_TO_APPLY_LIGER_FN"
        ):
            pairs = zip(node.value.keys, node.value.values, strict=True)
            return {
                str(key.value): ast.unparse(value) for key, value in pairs if isinstance(key, ast.Constant)
            }
    return {}


def _classes(tree: Tree, root: str, package: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in tree.files(f"{root}/transformers/*.py"):
        stem = path.rsplit("/", 1)[1].removesuffix(".py")
        if stem == "__init__":
            continue
        here = outline(tree.read(path))
        names = [*here.classes, *(name for name in here.functions if name.startswith("liger_"))]
        found |= {
            name: f"{package}.transformers.{stem}" for name in names if name.lower().startswith("liger")
        }
    return found


def _norms(tree: Tree, root: str, package: str) -> list[NormVariant]:
    variants = []
    for node in _parsed(tree.read(f"{root}/transformers/rms_norm.py") or "").body:
        if not isinstance(node, ast.ClassDef) or not node.name.startswith("LigerRMSNorm"):
            continue
        # a variant that computes something else in its forward is not one of ours to choose by defaults
        methods = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
        if "__init__" not in methods or ("forward" in methods and node.name != "LigerRMSNorm"):
            continue
        arguments = methods["__init__"].args
        names = [argument.arg for argument in arguments.args]
        defaults = dict(zip(names[len(names) - len(arguments.defaults) :], arguments.defaults, strict=True))
        known = {name: node.value for name, node in defaults.items() if isinstance(node, ast.Constant)}
        variants.append(
            NormVariant(
                name=node.name,
                module=f"{package}.transformers.rms_norm",
                casting_mode=str(known.get("casting_mode", "llama")),
                offset=float(known.get("offset", 0.0)),  # type: ignore[arg-type]
                in_place=bool(known.get("in_place", True)),
                init_fn=str(known.get("init_fn", "ones")),
                size_parameter=names[1] if len(names) > 1 else "hidden_size",
            )
        )
    return variants


def _guarded_classes(text: str | None) -> list[str]:
    return [
        inner.name
        for node in _parsed(text or "").body
        if isinstance(node, ast.If)
        for inner in node.body
        if isinstance(inner, ast.ClassDef)
    ]


def _parsed(text: str) -> ast.Module:
    try:
        return syntax_tree(text)
    except SyntaxError:
        return ast.Module(body=[], type_ignores=[])
