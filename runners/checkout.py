"""A private copy of a target checkout with a candidate's files applied. The original is never changed."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

SKIPPED = shutil.ignore_patterns(".git", "__pycache__", "*.pyc", "node_modules", ".venv", "*.arrow", "*.so")


def copy_checkout(checkout: Path, destination: Path, files: Mapping[str, str] | None = None) -> Path:
    """Copy `checkout` to `destination` (links stay links) and write `files` over it. Raises ValueError for a bad path."""
    shutil.copytree(checkout, destination, symlinks=True, ignore=SKIPPED)
    for name, text in (files or {}).items():
        path = inside(destination, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return destination


def inside(root: Path, name: str) -> Path:
    """`root / name`. Raises ValueError when that leaves the root, by `..` or through a link."""
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise ValueError(f"{name!r} is not a path inside the repository")
    path = root.joinpath(*pure.parts)
    if not path.parent.resolve().is_relative_to(root.resolve()) or path.is_symlink():
        raise ValueError(f"{name!r} goes through a link")
    return path
