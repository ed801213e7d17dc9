"""Writes a copy of a checkout's package and tests in which the Functions are answered by printed derived modules."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.upstream.adapters import ADAPTERS, Adapter
from benchmarks.upstream.references import Reference
from kernels.derivation import Unsupported
from kernels.derive import derive
from kernels.module_style import ModuleStyle
from kernels.printer import print_module
from kernels.syntax import syntax_tree
from kernels.trace import trace

OWN = Path(__file__).resolve().parent
RUNNERS = OWN.parents[1] / "runners"
MARK = "\n\n# benchmarks/upstream: the derived kernels answer from here on.\n"
TEST_SUPPORT = ("__init__.py", "conftest.py", "utils.py")


@dataclass(frozen=True)
class Overlay:
    """root: holds src/, test/, run_tests.py, interpreter.py · unsupported: variant -> why it is missing."""

    root: Path
    unsupported: Mapping[str, str]


def printed(reference: Reference) -> str | Unsupported:
    """The derived module of one reference as standalone text."""
    op = reference.op
    namespace: dict[str, Any] = {}
    exec(compile(op.source, f"{op.name}.py", "exec"), namespace)  # noqa: S102 - the catalog's or references.py's text
    try:
        return print_module(
            derive(trace(op, namespace[op.entry]), wide_rows=reference.wide_rows),
            ModuleStyle.standalone(op.name),
        )
    except Unsupported as unsupported:
        return unsupported


def replaced(source: str, adapter: Adapter) -> str | None:
    """An ops module with its Function replaced at the end; None when it defines no such class."""
    names = {node.name for node in syntax_tree(source).body if isinstance(node, ast.ClassDef)}
    if adapter.function not in names:
        return None
    return (
        f"{source.rstrip()}{MARK}from liger_kernel.derived import put_behind  # noqa: E402\n\n"
        f'{adapter.function} = put_behind({adapter.function}, "{adapter.name}")\n'
    )


def write_overlay(checkout: Path, root: Path, references: Mapping[str, Reference], ops: list[str]) -> Overlay:
    """Copy package and tests to `root` and put the derived modules of `ops` in.

    Raises LookupError when the checkout has another layout, ValueError when two of `ops` answer the same Function.
    """
    if len({ADAPTERS[op].module for op in ops}) < len(ops):
        raise ValueError(f"two of {', '.join(ops)} answer the same Function")
    shutil.copytree(
        checkout / "src" / "liger_kernel",
        root / "src" / "liger_kernel",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    (root / "test" / "transformers").mkdir(parents=True)
    for name in TEST_SUPPORT:
        if (checkout / "test" / name).exists():
            shutil.copy(checkout / "test" / name, root / "test" / name)
    # pytest's root is here, wherever the overlay lies: the tests' names start with test/.
    (root / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    package = root / "src" / "liger_kernel" / "derived"
    package.mkdir()
    shutil.copy(OWN / "behind.py", package / "__init__.py")
    shutil.copy(OWN / "adapters.py", package / "adapters.py")
    shutil.copy(OWN / "plugin.py", package / "plugin.py")
    shutil.copy(RUNNERS / "confined" / "run_tests.py", root / "run_tests.py")
    shutil.copy(RUNNERS / "interpreter.py", root / "interpreter.py")
    for op in ops:
        adapter = ADAPTERS[op]
        module = root / "src" / "liger_kernel" / "ops" / f"{adapter.module}.py"
        text = replaced(module.read_text(encoding="utf-8"), adapter) if module.exists() else None
        if text is None:
            raise LookupError(f"the checkout has no {adapter.function} in ops/{adapter.module}.py")
        module.write_text(text, encoding="utf-8")
        shutil.copy(checkout / adapter.test, root / adapter.test)
    unsupported = {}
    for name, reference in references.items():
        if not name.startswith(tuple(ops)):
            continue
        text_or_why = printed(reference)
        if isinstance(text_or_why, Unsupported):
            unsupported[name] = text_or_why.reason
        else:
            (package / f"{name}.py").write_text(text_or_why, encoding="utf-8")
    return Overlay(root, unsupported)
