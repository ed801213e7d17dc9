"""A target checkout held in memory."""

from __future__ import annotations

from fnmatch import fnmatchcase


class DictTree:
    """A Tree over a dictionary of path -> text."""

    def __init__(self, contents: dict[str, str]):
        self.contents = contents

    def read(self, path: str) -> str | None:
        return self.contents.get(path)

    def files(self, pattern: str) -> list[str]:
        parts = pattern.split("/")
        return sorted(path for path in self.contents if _matches(path.split("/"), parts))


def _matches(path: list[str], pattern: list[str]) -> bool:
    return len(path) == len(pattern) and all(map(fnmatchcase, path, pattern))
