"""Edits of the library's existing files: monkey_patch.py, transformers/__init__.py, output_classes.py, rms_norm.py. Pure."""

from __future__ import annotations

import ast

from agents.autopatch.layout import Layout
from agents.autopatch.model_profile import ModelProfile
from agents.autopatch.patch_plan import NormPatch, Plan
from agents.autopatch.splice import end_of, functions, insert_after, parse, place, relative
from agents.conventions import Conventions
from agents.conventions.edits import AnchorMissing, add_import, add_to_collection

PREFIX = "apply_liger_kernel_to_"
TABLE = "MODEL_TYPE_TO_APPLY_LIGER_FN"
TENSORS = {"predicted_tokens": "LongTensor"}
SYMBOLS = "monkey_patch_symbols"


def add_patch_function(text: str, code: str, profile: ModelProfile, path: str) -> str:
    """The function below its nearest relative, else below the last one."""
    tree = parse(text, path)
    found = functions(tree, lambda name: name.startswith(PREFIX))
    if not found:
        raise AnchorMissing(path, f"function named {PREFIX}*")
    by_name = {node.name.removeprefix(PREFIX): node for node in found}
    family = relative(list(by_name), profile.identifier)
    return insert_after(
        text, end_of(by_name[family] if family else found[-1]), "\n\n" + code.rstrip("\n") + "\n"
    )


def register(text: str, profile: ModelProfile, plan: Plan, path: str) -> str:
    """The entry, or two with the text sub-type, in the table of model types."""
    for model_type in (profile.model_type, profile.text_model_type):
        if model_type:
            text = _register(text, model_type, plan.function, path)
    return text


def _register(text: str, model_type: str, function: str, path: str) -> str:
    for node in parse(text, path).body:
        if (
            isinstance(node, ast.Assign)
            and ast.unparse(node.targets[0]) == TABLE
            and isinstance(node.value, ast.Dict)
        ):
            keys = [key.value for key in node.value.keys if isinstance(key, ast.Constant)]
            if model_type in keys:
                return text
            index = place([str(key) for key in keys], model_type)
            lines = [value.end_lineno or node.lineno for value in node.value.values]
            line = lines[index - 1] if index else node.lineno
            return insert_after(text, line, f'    "{model_type}": {function},\n')
    raise AnchorMissing(path, f"dictionary named {TABLE}")


def add_exports(text: str, plan: Plan, conventions: Conventions, path: str) -> str:
    """transformers/__init__.py: the import for type checkers, the lazy symbol, and __all__; one import where it is plain."""
    module = f"{conventions.package}.transformers.monkey_patch"
    lazy = conventions.transformers_init == "lazy"
    text = add_import(
        text,
        module,
        plan.function,
        path=path,
        noqa=True,
        line_length=conventions.line_length,
        block="TYPE_CHECKING" if lazy else None,
    )
    if not lazy:
        return text
    text = add_to_collection(text, SYMBOLS, plan.function, path=path)
    return _extend_all(text, plan.function, path)


def _extend_all(text: str, function: str, path: str) -> str:
    """Into the list that `__all__.extend([...])` adds when transformers is there."""
    for node in ast.walk(parse(text, path)):
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "__all__.extend"
            and isinstance(node.args[0], ast.List)
        ):
            elements = [e for e in node.args[0].elts if isinstance(e, ast.Constant)]
            names = [str(e.value) for e in elements]
            if function in names:
                return text
            index = place(names, function)
            line = (elements[index - 1].end_lineno or 0) if index else node.args[0].lineno
            indent = " " * elements[0].col_offset
            return insert_after(text, line, f'{indent}"{function}",\n')
    raise AnchorMissing(path, "`__all__.extend([...])`")


def needs_output_class(profile: ModelProfile, layout: Layout) -> bool:
    return layout.has_output_classes and f"Liger{profile.forward.output_class}" not in layout.output_classes


def add_output_class(text: str, profile: ModelProfile, extra: list[str], path: str) -> str:
    """A class that extends the model's own output, guarded so that the file imports where the model is missing."""
    name, module = profile.forward.output_class, profile.forward.output_module
    tree = parse(text, path)
    guards = [node for node in tree.body if isinstance(node, ast.Try | ast.ImportFrom | ast.Import)]
    if not guards:
        raise AnchorMissing(path, "import to stand beside")
    guard = f"\ntry:\n    from {module} import {name} as _{name}\nexcept Exception:\n    _{name} = None\n"
    text = insert_after(text, end_of(guards[-1]), guard)
    return text.rstrip("\n") + (
        f"\n\n\nif _{name} is not None:\n\n    @dataclass\n    class Liger{name}(_{name}):\n"
        + "".join(
            f"        {name}: Optional[torch.{TENSORS.get(name, 'FloatTensor')}] = None\n" for name in extra
        )
    )


def add_norm_variant(text: str, patch: NormPatch, path: str) -> str:
    """A subclass of LigerRMSNorm with this model's defaults, at the end of rms_norm.py."""
    tree = parse(text, path)
    base = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "LigerRMSNorm"), None)
    if base is None:
        raise AnchorMissing(path, "class LigerRMSNorm")
    init = next(n for n in base.body if isinstance(n, ast.FunctionDef) and n.name == "__init__")
    known = [a.arg for a in init.args.args]
    norm = patch.norm
    values = {
        "eps": "1e-6",
        "offset": str(norm.offset),
        "casting_mode": f'"{norm.casting_mode or "llama"}"',
        "init_fn": f'"{norm.init_fn}"',
        "in_place": str(norm.in_place),
        "row_mode": str(norm.row_mode),
    }
    taken = [name for name in values if name in known]
    parameters = ", ".join(f"{name}={values[name]}" for name in taken)
    # by name: the order of the base's parameters is the checkout's business
    passed = ", ".join(f"{name}={name}" for name in taken)
    # the model calls its own norm by keyword, so the size keeps the name it has there
    size = norm.parameter_names[0] if norm.parameter_names else "hidden_size"
    size = size if size.isidentifier() else "hidden_size"
    return text.rstrip("\n") + (
        f"\n\n\nclass {patch.liger_class}(LigerRMSNorm):\n    def __init__(self, {size}, {parameters}):\n"
        f"        super().__init__({size}, {passed})\n"
    )
