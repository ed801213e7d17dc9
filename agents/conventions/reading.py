"""Reads Python source as data: which names a module defines, imports and where. Never imports or runs it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import lru_cache

from kernels.syntax import syntax_tree


@dataclass(frozen=True)
class Definition:
    """A top-level function or class."""

    name: str
    line: int
    parameters: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    decorators: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()


@dataclass(frozen=True)
class Import:
    """One imported name: `from module import name`, or `import module` with an empty name."""

    module: str
    name: str
    line: int
    nested: bool = False


@dataclass(frozen=True)
class Outline:
    """What one Python file defines and imports. A file that does not parse has an empty outline."""

    functions: dict[str, Definition] = field(default_factory=dict)
    classes: dict[str, Definition] = field(default_factory=dict)
    imports: tuple[Import, ...] = ()

    def imports_from(self, module: str) -> list[Import]:
        return [found for found in self.imports if found.module == module and found.name]


@lru_cache(maxsize=512)  # a run over many models reads the same checkout again and again
def outline(source: str | None) -> Outline:
    """Outline of a file's text; empty for None and for text that is not Python of this version."""
    if not source:
        return Outline()
    try:
        module = syntax_tree(source)
    except (SyntaxError, ValueError):
        return Outline()
    functions: dict[str, Definition] = {}
    classes: dict[str, Definition] = {}
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions[node.name] = _function(node)
        elif isinstance(node, ast.ClassDef):
            classes[node.name] = Definition(
                name=node.name,
                line=node.lineno,
                bases=tuple(ast.unparse(base) for base in node.bases),
                methods=tuple(item.name for item in node.body if isinstance(item, ast.FunctionDef)),
            )
    top = set(map(id, module.body))
    imports = tuple(
        found for node in ast.walk(module) for found in _imports(node, nested=id(node) not in top)
    )
    return Outline(functions=functions, classes=classes, imports=imports)


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Definition:
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return Definition(
        name=node.name,
        line=node.lineno,
        parameters=tuple(argument.arg for argument in named),
        decorators=tuple(ast.unparse(decorator) for decorator in node.decorator_list),
    )


def _imports(node: ast.AST, *, nested: bool) -> list[Import]:
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        return [Import(node.module, alias.name, node.lineno, nested) for alias in node.names]
    if isinstance(node, ast.Import):
        return [Import(alias.name, "", node.lineno, nested) for alias in node.names]
    return []
