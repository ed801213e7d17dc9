"""Runs one test function of a large test file with only the imports that it uses.

test_monkey_patch.py imports from every model of the library; with a newer transformers one of those may fail for a reason
that has nothing to do with the model at hand. Then the function is taken out of the file, with what it needs, and run alone.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any


def run(path: str, name: str) -> tuple[bool | None, str, str]:
    """Raises whatever the test raises."""
    source = Path(path).read_text()
    try:
        module = _load(Path(path), "whole_test_file")
        how = "in its file"
    except ImportError as error:
        with tempfile.TemporaryDirectory() as folder:
            alone = Path(folder) / "alone.py"
            alone.write_text(extract(source, name))
            module = _load(alone, "alone")
            how = f"taken out of its file, which does not import here ({error})"
            getattr(module, name)()
            return True, how, ""
    getattr(module, name)()
    return True, how, ""


def _load(path: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    sys.modules[name] = module  # inspect.getsource looks there
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


def extract(source: str, name: str) -> str:
    """The function with the top-level statements that define the names it uses, transitively, in their order."""
    tree = ast.parse(source)
    wanted = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name), None)
    if wanted is None:
        raise LookupError(f"no test named {name}")
    chosen = {id(wanted)}
    names = _used(wanted)
    while True:
        more = [n for n in tree.body if id(n) not in chosen and _defined(n) & names]
        if not more:
            break
        for node in more:
            chosen.add(id(node))
            names |= _used(node)
    return "\n".join(ast.unparse(node) for node in tree.body if id(node) in chosen)


def _used(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - set(dir(builtins))


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.Import):
        return {(a.asname or a.name).split(".")[0] for a in node.names}
    if isinstance(node, ast.ImportFrom):
        return {a.asname or a.name for a in node.names}
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {t.id for t in node.targets if isinstance(t, ast.Name)}
    if isinstance(node, ast.Try | ast.If):
        return set().union(*(_defined(n) for n in node.body)) if node.body else set()
    return set()
