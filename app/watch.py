"""`liger-bot watch`: which patches of a checkout break or drift under the installed transformers, or under another one."""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from agents.autopatch.drift import Drift, watch
from agents.conventions import NotAKernelLibrary
from agents.conventions.edits import AnchorMissing
from app.checkout import CheckoutTree
from app.usage import EXIT_FAILED, UsageMistake

if TYPE_CHECKING:
    from rich.console import Console

_VERSION = re.compile(r'^__version__ = "([^"]+)"', re.MULTILINE)
_ORDER = {"breaks": 0, "dead": 1, "drifts": 2}
_SIGNS = {"breaks": "[red]✗ breaks[/]", "dead": "[yellow]! dead[/]", "drifts": "[dim]○ drifts[/]"}


def run_watch(repo: Path, against: Path | None, json_file: Path | None, console: Console) -> int:
    """Show the findings; 1 when a patch breaks or is dead. Raises UsageMistake for folders that hold something else."""
    checkout = CheckoutTree(repo)
    installed, version = _installed()
    found = _findings(checkout, installed, version, repo)
    new: set[Drift] = set()
    if against is not None:
        other, other_version = _source(against)
        before, found = set(found), _findings(checkout, other, other_version, repo)
        new = set(found) - before
        version = f"{other_version} (✱: not under the installed {version})"
    found.sort(key=lambda one: _ORDER[one.kind])
    _show(console, found, new, version)
    if json_file is not None:
        rows = [{**asdict(one), "new": one in new} for one in found]
        json_file.write_text(json.dumps(rows, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return EXIT_FAILED if any(one.kind != "drifts" for one in found) else 0


def _findings(checkout: CheckoutTree, transformers: CheckoutTree, version: str, repo: Path) -> list[Drift]:
    try:
        return watch(checkout, transformers, version)
    except (NotAKernelLibrary, AnchorMissing) as error:
        raise UsageMistake(f"--repo {repo}: {error}") from None


def _installed() -> tuple[CheckoutTree, str]:
    """The installed transformers, found without importing it."""
    spec = importlib.util.find_spec("transformers")
    if spec is None or not spec.submodule_search_locations:
        raise UsageMistake(
            "transformers is not installed here; install it, or run this where the runner runs"
        )
    return _source(Path(spec.submodule_search_locations[0]).parent)


def _source(folder: Path) -> tuple[CheckoutTree, str]:
    """The folder that holds `transformers`: it, its `src`, or its parent when it is the package itself."""
    for root in (folder, folder / "src", folder.parent):
        text = CheckoutTree(root).read("transformers/__init__.py")
        found = _VERSION.search(text) if text else None
        if found:
            return CheckoutTree(root), found[1]
    raise UsageMistake(
        f"--against {folder} holds no transformers: give the folder above it, or a checkout of it"
    )


def _show(console: Console, found: list[Drift], new: set[Drift], version: str) -> None:
    console.print(f"Patches under transformers {escape(version)}", style="bold", highlight=False)
    for one in found:
        sign = _SIGNS[one.kind] + (" ✱" if one in new else "")
        where = escape(one.where) + (f" · ask for: {escape(one.propose)}" if one.propose else "")
        console.print(
            f"{sign} [bold]{escape(one.model)}[/]: {escape(one.what)}", highlight=False, soft_wrap=True
        )
        console.print(f"    [dim]{where}[/]", highlight=False, soft_wrap=True)
    counts = {kind: sum(one.kind == kind for one in found) for kind in _ORDER}
    console.print(
        f"{counts['breaks']} break, {counts['dead']} dead assignments, {counts['drifts']} drift",
        highlight=False,
    )
