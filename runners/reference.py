"""Loads a reference from its source, or extracts one from an installed package. Executes it: only inside a sandbox."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import math
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

from kernels.derivation import Unsupported
from kernels.op_spec import OpSpec
from kernels.syntax import syntax_tree
from runners.static_scan import ALLOWED_MODULES

MAX_DEFINITIONS = 20


def load_reference(op: OpSpec, folder: Path) -> Any:
    """Execute the reference's source from a file in `folder` (so that its lines have names) and return its entry.

    Raises Unsupported when it fails or has no such entry.
    """
    path = folder / "reference.py"
    path.write_text(op.source)
    spec = importlib.util.spec_from_file_location("reference", path)
    assert spec is not None  # noqa: S101 - a .py file always has a loader
    assert spec.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(spec)
    sys.modules["reference"] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise Unsupported(
            f"the reference fails as soon as it is loaded: {type(error).__name__}: {error}",
            where=_where(error, path, op.source),
            needed="source that stands on its own, with its imports",
        ) from error
    entry = getattr(module, op.entry, None)
    if not callable(entry):
        raise Unsupported(
            f"the reference defines no function or class called {op.entry}",
            needed=f"a definition of {op.entry}",
        )
    return entry


def _where(error: Exception, path: Path, source: str) -> str | None:
    traceback, line = error.__traceback__, None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == str(path):
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    lines = source.splitlines()
    return f"line {line}: {lines[line - 1].strip()}" if line and line <= len(lines) else None


def import_dotted(dotted_path: str) -> Any:
    """The object behind "package.module:Name". Raises Unsupported when there is none."""
    module_name, _, name = dotted_path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise Unsupported(
            f"{module_name} can't be imported on the runner: {type(error).__name__}: {error}",
            needed="an installed package",
        ) from error
    found = getattr(module, name, None)
    if not (inspect.isfunction(found) or inspect.isclass(found)):
        what = "has nothing" if found is None else "has no function or class"
        raise Unsupported(f"{module_name} {what} called {name}", needed="a function or an nn.Module")
    return found


def extract_source(found: Any) -> str:
    """Self-contained source of a function or class: its definition, and the imports, constants and definitions it needs.

    Decorators are left out: whether they matter is seen by tracing both and comparing. Raises Unsupported for a name that
    can't be carried along.
    """
    imports: dict[str, str] = {}
    constants: dict[str, str] = {}
    definitions: dict[str, str] = {}
    pending = [found]
    while pending:
        item = pending.pop(0)
        if item.__name__ in definitions:
            continue
        if len(definitions) >= MAX_DEFINITIONS:
            raise Unsupported(
                f"{found.__name__} needs more than {MAX_DEFINITIONS} other definitions",
                needed="a smaller reference",
            )
        tree = _definition(item)
        definitions[item.__name__] = ast.unparse(tree)
        namespace = vars(sys.modules[item.__module__])
        for name in sorted(
            {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} & namespace.keys()
        ):
            value = namespace[name]
            if value is item:
                continue
            if isinstance(value, ModuleType):
                imports[name] = _module_import(value, name)
            elif isinstance(value, bool | int | float | str) or value is None:
                constants[name] = f"{name} = {_literal(value)}"
            elif getattr(value, "__module__", "").split(".")[0] in ("torch", "typing", "math") or value in (
                math.pi,
                math.e,
            ):
                imports[name] = _object_import(value, name)
            elif inspect.isfunction(value) or inspect.isclass(value):
                pending.append(value)
            else:
                raise Unsupported(
                    f"{item.__name__} uses {name}, a {type(value).__name__} that can't be copied",
                    needed="a self-contained reference",
                )
    # Definitions that others need at class-creation time (base classes) come first.
    ordered = list(definitions.values())[::-1]
    return (
        "\n".join(
            [
                *sorted(imports.values()),
                "",
                *constants.values(),
                "",
                *("\n" + text + "\n" for text in ordered),
            ]
        ).strip()
        + "\n"
    )


def _definition(item: Any) -> ast.FunctionDef | ast.ClassDef:
    try:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(item)))
    except (OSError, TypeError) as error:
        raise Unsupported(
            f"the source of {item.__name__} can't be read", needed="a function or class written in Python"
        ) from error
    tree = syntax_tree(source).body[0]
    if not isinstance(tree, ast.FunctionDef | ast.ClassDef):
        raise Unsupported(
            f"{item.__name__} is not a plain function or class", needed="a function or an nn.Module"
        )
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            node.decorator_list = [
                d
                for d in node.decorator_list
                if isinstance(d, ast.Name) and d.id in ("staticmethod", "property", "classmethod")
            ]
    return tree


def _module_import(module: ModuleType, name: str) -> str:
    full = module.__name__
    if full not in ALLOWED_MODULES:
        raise Unsupported(f"it uses the module {full}", needed="a reference that uses torch and math alone")
    parent, _, leaf = full.rpartition(".")
    if parent:
        return f"from {parent} import {leaf}" if leaf == name else f"from {parent} import {leaf} as {name}"
    return f"import {full}" if full == name else f"import {full} as {name}"


def _object_import(value: Any, name: str) -> str:
    for module_name in ("torch", "torch.nn", "torch.nn.functional", "typing", "math"):
        module = importlib.import_module(module_name)
        for candidate in (name, getattr(value, "__name__", name)):
            if getattr(module, candidate, None) is value:
                return f"from {module_name} import {candidate}" + (f" as {name}" if candidate != name else "")
    raise Unsupported(
        f"it uses {getattr(value, '__module__', '?')}.{name}",
        needed="a reference that uses torch's public names",
    )


def _literal(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)
