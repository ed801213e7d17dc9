"""What an existing apply_liger_kernel_to_{m} expects of transformers: the names that it imports, replaces and calls. Pure.

Read from its syntax tree; nothing is imported or run. Branches on the transformers version are followed for the version given.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

V5_NAMES = {"IS_TRANSFORMERS_V5_OR_LATER"}
VERSION_NAMES = {"transformer_version", "transformers_version"}


@dataclass(frozen=True)
class Expected:
    """One thing that the function takes for granted.

    kind: "import" (module and name), "assignment" (module.name is replaced), "forward" (module.owner.forward is replaced by
    `value`), "attribute" (a submodule of an instance). flag: the parameter under which it happens.
    """

    kind: str
    module: str
    name: str
    line: int
    flag: str | None = None
    value: str = ""


def expectations(function: ast.FunctionDef, version: tuple[int, ...]) -> list[Expected]:
    """Everything that the function expects, in its order, under transformers `version`."""
    flags = {argument.arg for argument in function.args.args}
    aliases: dict[str, str] = {}
    found: list[Expected] = []
    for statement, flag, guarded in _statements(function.body, flags, version):
        if isinstance(statement, ast.ImportFrom):
            found += _imported(statement, aliases, flag, guarded)
        elif isinstance(statement, ast.Assign):
            found += _assigned(statement, aliases, flag)
        elif isinstance(statement, ast.Expr) and not guarded:
            found += _patched_instance(statement, flag)
    return found


def _statements(
    body: Sequence[ast.stmt],
    flags: set[str],
    version: tuple[int, ...],
    flag: str | None = None,
    guarded: bool = False,
) -> Iterator[tuple[ast.stmt, str | None, bool]]:
    """(simple statement, flag, whether a condition or a handler protects it)"""
    for node in body:
        if isinstance(node, ast.If):
            known = holds(node.test, version)
            test = ast.unparse(node.test)
            inner = test if test in flags else flag
            protects = guarded or (
                bool(re.search(r"hasattr|getattr|isinstance|is not None|is_\w+", test))
                and test != "model is not None"
            )
            if known is not False:
                yield from _statements(node.body, flags, version, inner, protects)
            if known is not True:
                yield from _statements(node.orelse, flags, version, flag, guarded)
        elif isinstance(node, ast.For | ast.With):
            yield from _statements(node.body, flags, version, flag, guarded)
        elif isinstance(node, ast.Try):
            yield from _statements(node.body, flags, version, flag, True)
        else:
            yield node, flag, guarded


def holds(test: ast.expr, version: tuple[int, ...]) -> bool | None:
    """Whether a condition on the transformers version holds; None for any other condition."""
    if isinstance(test, ast.Name) and test.id in V5_NAMES:
        return version >= (5,)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = holds(test.operand, version)
        return None if inner is None else not inner
    found = re.fullmatch(r"(\w+) (<|<=|>|>=) version\.parse\('([\d.]+)'\)", ast.unparse(test))
    if not found or found[1] not in VERSION_NAMES:
        return None
    other = tuple(int(part) for part in found[3].split("."))
    return {"<": version < other, "<=": version <= other, ">": version > other, ">=": version >= other}[
        found[2]
    ]


def _imported(
    node: ast.ImportFrom, aliases: dict[str, str], flag: str | None, guarded: bool
) -> list[Expected]:
    module = node.module or ""
    if module.split(".")[0] != "transformers":
        return []
    found = []
    for alias in node.names:
        name = alias.asname or alias.name
        if alias.name.startswith("modeling_"):
            aliases[name] = f"{module}.{alias.name}"
            found.append(Expected("import", f"{module}.{alias.name}", "", node.lineno, flag))
        else:
            found.append(Expected("import", module, alias.name, node.lineno, flag))
    return [] if guarded else found


def _assigned(node: ast.Assign, aliases: dict[str, str], flag: str | None) -> list[Expected]:
    found = []
    for target in node.targets:
        parts = ast.unparse(target).split(".")
        if parts[0] == "model" and parts[1:] == ["forward"]:
            continue  # the same function as in the class path
        if parts[0] not in aliases or not isinstance(target, ast.Attribute):
            continue
        module = aliases[parts[0]]
        if len(parts) == 3 and parts[2] == "forward":
            found.append(Expected("forward", module, parts[1], node.lineno, flag, _function_name(node.value)))
        else:
            found.append(Expected("assignment", module, parts[1], node.lineno, flag, ast.unparse(node.value)))
    return found


def _function_name(value: ast.expr) -> str:
    """The name of the function that is assigned; empty when it is chosen at run time."""
    return value.id if isinstance(value, ast.Name) else ""


def _patched_instance(node: ast.Expr, flag: str | None) -> list[Expected]:
    """`_patch_rms_norm_module(decoder_layer.self_attn.q_norm)` expects `self_attn` and `q_norm`."""
    call = node.value
    if not isinstance(call, ast.Call) or not ast.unparse(call.func).startswith("_patch_") or not call.args:
        return []
    first = call.args[0]
    if not isinstance(first, ast.Attribute):
        return []
    parts = ast.unparse(first).split(".")
    if not all(part.isidentifier() for part in parts):
        return []
    return [Expected("attribute", "", part, node.lineno, flag, ".".join(parts)) for part in parts[1:]]
