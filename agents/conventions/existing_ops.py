"""The ops that a target checkout already has: their modules, Function classes, functionals and kernels."""

from __future__ import annotations

import re

from agents.conventions.reading import outline
from agents.conventions.record import ExistingOp
from agents.ports import Tree

_JIT = re.compile(r"^\s*@triton\.jit\b", re.MULTILINE)


def is_jit(source: str) -> bool:
    """Whether a file's text decorates something with @triton.jit."""
    return _JIT.search(source) is not None


def existing_ops(tree: Tree, source_root: str) -> tuple[ExistingOp, ...]:
    """Every module directly in ops/ that defines a Function or a jit kernel, sorted by name."""
    functionals = _functionals(tree, source_root)
    ops = []
    for path in tree.files(f"{source_root}/ops/*.py"):
        name = path.rsplit("/", 1)[-1].removesuffix(".py")
        if name in ("__init__", "utils"):
            continue
        found = outline(tree.read(path))
        classes = tuple(
            cls.name for cls in found.classes.values() if any("Function" in base for base in cls.bases)
        )
        kernels = tuple(
            function.name
            for function in found.functions.values()
            if any("triton.jit" in d for d in function.decorators)
        )
        if classes or kernels:
            called = tuple(sorted(name for cls in classes for name in functionals.get(cls, ())))
            ops.append(
                ExistingOp(
                    name=name, path=path, function_classes=classes, functionals=called, kernels=kernels
                )
            )
    return tuple(sorted(ops, key=lambda op: op.name))


def _functionals(tree: Tree, source_root: str) -> dict[str, list[str]]:
    """Function class -> functions of transformers/functional.py whose body names it."""
    source = tree.read(f"{source_root}/transformers/functional.py") or ""
    found = outline(source)
    lines = source.splitlines()
    starts = sorted((function.line, function.name) for function in found.functions.values())
    users: dict[str, list[str]] = {}
    for index, (start, name) in enumerate(starts):
        end = starts[index + 1][0] - 1 if index + 1 < len(starts) else len(lines)
        for cls in set(re.findall(r"\b(\w+Function)\.apply\b", "\n".join(lines[start - 1 : end]))):
            users.setdefault(cls, []).append(name)
    return users
