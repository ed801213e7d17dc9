"""Which transformers a checkout supports, and which of them this runner has: to import a patch under each.

Environments are folders with another transformers and what it needs (`pip install --target`), given to the runner by its operator;
nothing is installed here.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

SITES = "LIGER_BOT_TRANSFORMERS_SITES"
_DISTRIBUTION = re.compile(r"transformers-([\w.]+)\.dist-info")


@dataclass(frozen=True)
class Range:
    """What the checkout's setup.py or pyproject.toml asks for; empty where it names no bound. oldest is in, below is out."""

    oldest: str = ""
    below: str = ""
    where: str = ""

    def has(self, version: str) -> bool:
        """Whether the checkout supports this version."""
        return (not self.oldest or numbers(version) >= numbers(self.oldest)) and (
            not self.below or numbers(version) < numbers(self.below)
        )

    def is_oldest(self, version: str) -> bool:
        """The bound itself or a patch release of it: a yanked x.y.0 is replaced by x.y.1."""
        return bool(self.oldest) and numbers(version)[:2] == numbers(self.oldest)[:2] and self.has(version)


def supported(checkout: Path) -> Range:
    """The range of transformers that the checkout declares; read, never run."""
    for name in ("setup.py", "pyproject.toml"):
        path = checkout / name
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        found = re.search(r"[\"']transformers\s*([^\"']*)[\"']", text)
        if found and found[1].strip():
            oldest = re.search(r"(?:>=|==|~=)\s*([\d.]+)", found[1])
            below = re.search(r"<\s*([\d.]+)", found[1])
            return Range(oldest[1] if oldest else "", below[1] if below else "", name)
    return Range()


def sites(value: str | None = None) -> dict[str, Path]:
    """version -> folder, oldest first, of the runner's other environments. Folders without a transformers are left out."""
    listed = os.environ.get(SITES, "") if value is None else value
    found: dict[str, Path] = {}
    for text in filter(None, listed.split(os.pathsep)):
        folder = Path(text)
        names = (_DISTRIBUTION.fullmatch(path.name) for path in folder.glob("transformers-*.dist-info"))
        found |= {match[1]: folder for match in names if match}
    return dict(sorted(found.items(), key=lambda item: numbers(item[0])))


def numbers(version: str) -> tuple[int, ...]:
    """ "5.24.0" as (5, 24, 0), to compare."""
    return tuple((*(int(part) for part in re.findall(r"\d+", version)[:3]), 0, 0, 0)[:3])
