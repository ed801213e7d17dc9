"""Python that a person gave (a block, or a file behind a link) -> a self-contained reference. Pure; parsed, never executed."""

from __future__ import annotations

import ast

from pydantic import Field

from agents.dev.refused import Mistake
from kernels.op_spec import Frozen
from kernels.syntax import syntax_tree
from runners.static_scan import ALLOWED_MODULES, MAX_SOURCE_CHARS, scan

Definition = ast.FunctionDef | ast.ClassDef
_USUAL_IMPORTS = {
    "math": "import math",
    "torch": "import torch",
    "nn": "import torch.nn as nn",
    "F": "import torch.nn.functional as F",
}


class ReferenceSource(Frozen):
    """Source that passed the allow-list, and what in it is the op."""

    source: str
    entry: str
    kind: str = Field(description='"function" or "module"')
    questions: tuple[str, ...] = ()


def read_block(source: str, name: str | None = None) -> ReferenceSource:
    """Check a ```python block and find its entry; `name` prefers a definition of that name. Raises Mistake."""
    tree = _parse(source, "the block")
    imported = _with_usual_imports(source, tree)
    _check(imported)
    return _entry(imported, syntax_tree(imported), name)


def extract_reference(
    text: str, lines: tuple[int, int] | None = None, name: str | None = None
) -> ReferenceSource:
    """Cut one function or nn.Module, with what it needs of the same file, out of a whole file. Raises Mistake.

    lines: first and last line, both included; without them the file must hold one candidate, or `name` picks it.
    """
    tree = _parse(text, "the file")
    wanted = _selected(tree, lines, name)
    cut, notes = _Cut(tree).around(wanted)
    _check(cut)
    found = _entry(cut, syntax_tree(cut), wanted.name)
    return found.model_copy(update={"questions": (*notes, *found.questions)})


def _parse(source: str, what: str) -> ast.Module:
    if len(source) > 10 * MAX_SOURCE_CHARS:
        raise Mistake(
            f"{what.capitalize()} has {len(source):,} characters; at most {MAX_SOURCE_CHARS:,} are read."
        )
    try:
        return syntax_tree(source)
    except SyntaxError as error:
        line = (error.text or "").strip()[:120]
        raise Mistake(
            f"{what.capitalize()} does not parse: {error.msg}.",
            where=f"reference line {error.lineno}: {line}",
        ) from error
    except (RecursionError, MemoryError, ValueError) as error:
        raise Mistake(
            f"{what.capitalize()} can't be parsed: {error or 'it is nested too deeply'}."
        ) from error


def _check(source: str) -> None:
    findings = scan(source)
    if findings:
        first = findings[0]
        more = f" ({len(findings) - 1} more of this kind.)" if len(findings) > 1 else ""
        raise Mistake(
            f"The reference is refused: {first.message}.{more}",
            where=f"reference line {first.line}: {first.code}" if first.line else None,
            needed="A function of tensors and numbers, or an nn.Module, in plain PyTorch.",
        )


def _with_usual_imports(source: str, tree: ast.Module) -> str:
    """Add `import torch` and its usual short names where the block uses them without importing."""
    bound = {
        alias.asname or alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    bound |= {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    missing = [line for name, line in _USUAL_IMPORTS.items() if name in used - bound]
    return "\n".join([*missing, "", "", source.lstrip("\n")]) if missing else source


def _is_module(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).rsplit(".", 1)[-1] == "Module" for base in node.bases)


def _definitions(tree: ast.Module) -> list[Definition]:
    return [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]


def _used_names(node: ast.AST) -> set[str]:
    return {
        part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)
    }


def _entry(source: str, tree: ast.Module, name: str | None) -> ReferenceSource:
    definitions = _definitions(tree)
    if not definitions:
        raise Mistake(
            "The reference has no function and no nn.Module.",
            needed="def my_op(x): …, or class MyOp(nn.Module) with a forward.",
        )
    squeezed = (name or "").replace("_", "").lower()
    named = [node for node in definitions if squeezed and node.name.replace("_", "").lower() == squeezed]
    modules = [node for node in definitions if isinstance(node, ast.ClassDef) and _is_module(node)]
    helpers = {used for node in definitions for used in _used_names(node) if used != node.name}
    tops = [
        node
        for node in definitions
        if node.name not in helpers and (isinstance(node, ast.FunctionDef) or _is_module(node))
    ]
    candidates = named or [node for node in modules if node in tops] or tops or definitions[-1:]
    chosen = candidates[-1]
    questions = ()
    if len(candidates) > 1:
        others = ", ".join(f"`{node.name}`" for node in candidates[:-1])
        questions = (
            f"`{chosen.name}`, the last definition, was taken as the op; the reference also has {others}. Keep only one in the block to choose another.",
        )
    if isinstance(chosen, ast.ClassDef):
        if not _is_module(chosen):
            raise Mistake(
                f"`{chosen.name}` is not an nn.Module.",
                where=f"reference line {chosen.lineno}: class {chosen.name}",
            )
        if not any(isinstance(part, ast.FunctionDef) and part.name == "forward" for part in chosen.body):
            raise Mistake(
                f"`{chosen.name}` has no forward method.",
                where=f"reference line {chosen.lineno}: class {chosen.name}",
            )
        return ReferenceSource(source=source, entry=chosen.name, kind="module", questions=questions)
    arguments = chosen.args
    if arguments.vararg or arguments.kwarg:
        raise Mistake(
            f"`{chosen.name}` takes *args or **kwargs; name every argument.",
            where=f"reference line {chosen.lineno}: def {chosen.name}",
        )
    if not (arguments.args or arguments.posonlyargs or arguments.kwonlyargs):
        raise Mistake(
            f"`{chosen.name}` takes no tensor.", where=f"reference line {chosen.lineno}: def {chosen.name}"
        )
    return ReferenceSource(source=source, entry=chosen.name, kind="function", questions=questions)


def _selected(tree: ast.Module, lines: tuple[int, int] | None, name: str | None) -> Definition:
    definitions = _definitions(tree)
    if lines:
        first, last = lines
        touching = [
            node for node in definitions if node.lineno <= last and (node.end_lineno or node.lineno) >= first
        ]
        starting = [node for node in touching if node.lineno >= first or first <= _first_line(node)]
        if not touching:
            raise Mistake(f"Lines {first}-{last} hold no function and no class.")
        return (starting or touching)[0]
    if name:
        for node in definitions:
            if node.name == name:
                return node
    modules = [node for node in definitions if isinstance(node, ast.ClassDef) and _is_module(node)]
    candidates = modules or [
        node for node in definitions if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]
    if len(candidates) != 1:
        names = ", ".join(f"`{node.name}`" for node in candidates[:8]) or "none"
        raise Mistake(
            f"The file holds several candidates ({names}).",
            needed="Add the line numbers to the link: #L10-L40.",
        )
    return candidates[0]


def _first_line(node: Definition) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


class _Cut:
    """Cuts a definition and everything of its module that it needs."""

    def __init__(self, tree: ast.Module):
        self.providers: dict[str, ast.stmt] = {}
        for node in tree.body:
            for name in _provided(node):
                self.providers[name] = node
        self.order = {id(node): position for position, node in enumerate(tree.body)}

    def around(self, wanted: Definition) -> tuple[str, list[str]]:
        """(source, notes for the profile). Raises Mistake when something comes from an import that is not allowed."""
        needed: dict[int, ast.stmt] = {}
        notes: list[str] = []
        queue: list[ast.stmt] = [wanted]
        imports: dict[str, ast.stmt] = {}
        while queue:
            node = queue.pop()
            if id(node) in needed:
                continue
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                notes += _bare(node)
            needed[id(node)] = node
            for name in sorted(_used_names(node)):
                provider = self.providers.get(name)
                if isinstance(provider, ast.Import | ast.ImportFrom):
                    imports[name] = _one_import(provider, name)
                elif provider is not None:
                    queue.append(provider)
        body = sorted(needed.values(), key=lambda node: self.order[id(node)])
        lines = list(dict.fromkeys(ast.unparse(imports[name]) for name in sorted(imports)))
        source = "\n".join(lines) + "\n\n\n" + "\n\n\n".join(ast.unparse(node) for node in body) + "\n"
        return source, notes


def _provided(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def _one_import(node: ast.Import | ast.ImportFrom, name: str) -> ast.stmt:
    """The part of an import that provides `name`. Raises Mistake when it is not allowed in a reference."""
    alias = next(alias for alias in node.names if (alias.asname or alias.name.split(".")[0]) == name)
    module = ("." * node.level + (node.module or "")) if isinstance(node, ast.ImportFrom) else alias.name
    if module not in ALLOWED_MODULES and f"{module}.{alias.name}" not in ALLOWED_MODULES:
        raise Mistake(
            f"The code at that link uses `{name}` from `{module}`, which a reference may not import.",
            where=f"line {node.lineno}: {ast.unparse(node)[:120]}",
            needed="Paste a self-contained version as a ```python block.",
        )
    kept = (
        ast.Import(names=[alias])
        if isinstance(node, ast.Import)
        else ast.ImportFrom(module=node.module, names=[alias], level=0)
    )
    return ast.fix_missing_locations(kept)


def _bare(node: Definition) -> list[str]:
    """Drop decorators and annotations, which name things that the reference does not need; returns notes."""
    notes = []
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef | ast.ClassDef):
            dropped = [
                d
                for d in part.decorator_list
                if not (isinstance(d, ast.Name) and d.id in {"staticmethod", "property", "classmethod"})
            ]
            notes += [
                f"The decorator `@{ast.unparse(d)[:60]}` of `{part.name}` was left out of the reference."
                for d in dropped
            ]
            part.decorator_list = [d for d in part.decorator_list if d not in dropped]
        if isinstance(part, ast.arg):
            part.annotation = None
        if isinstance(part, ast.FunctionDef):
            part.returns = None
    return notes
