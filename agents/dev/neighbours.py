"""Existing tests that a new export could break: those that import from a package whose `__init__` the candidate edits. Pure."""

from __future__ import annotations

from agents.conventions import Conventions
from agents.conventions.reading import Import, outline
from agents.ports import Tree

MAX_LINES = 400  # longer ones (test_monkey_patch: 1,100 to 4,500 lines) patch every model and take minutes


def neighbours(tree: Tree, conventions: Conventions, *, exclude: str = "") -> list[str]:
    """Short tests of the edited packages that launch no kernel of their own, so that they take seconds.

    Tests that import transformers themselves are left out: they break with its releases, whatever a candidate does.
    """
    roots = (f"{conventions.package}.transformers", f"{conventions.package}.ops")
    found = []
    for path in tree.files("test/transformers/test_*.py"):
        source = tree.read(path) or ""
        if path == exclude or source.count("\n") > MAX_LINES:
            continue
        imports = outline(source).imports
        if any(one.module in roots and one.name for one in imports) and not any(
            _launches(one, conventions.package) or _of_transformers(one) for one in imports
        ):
            found.append(path)
    return found


def _launches(one: Import, package: str) -> bool:
    """Whether an imported name is a kernel or a thin function over one."""
    return one.module.startswith((f"{package}.ops", f"{package}.transformers.functional"))


def _of_transformers(one: Import) -> bool:
    return one.module.split(".", 1)[0] == "transformers"
