"""A target checkout on disk, read-only: what the agents see as a Tree."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

MAX_TEXT_BYTES = 2_000_000


class CheckoutTree:
    """The files of a checkout. Links are not followed, whatever is not text is not there."""

    def __init__(self, root: Path):
        self.root = root.resolve()

    def read(self, path: str) -> str | None:
        """Text of a file, or None when there is no such file (or it is a link, too large or not text)."""
        file = self._plain_file(path)
        if file is None:
            return None
        try:
            # as it is: with read_text, editing one line of a file with \r\n would change all of them
            return file.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            return None

    def files(self, pattern: str) -> list[str]:
        """Sorted paths matching a glob pattern, relative to the root."""
        if pattern.startswith("/") or ".." in PurePosixPath(pattern).parts:
            return []
        found = (path.relative_to(self.root).as_posix() for path in self.root.glob(pattern))
        return sorted(path for path in found if self._plain_file(path) is not None)

    def _plain_file(self, path: str) -> Path | None:
        pure = PurePosixPath(path)
        if not path or pure.is_absolute() or ".." in pure.parts or ".git" in pure.parts:
            return None
        file = self.root
        for part in pure.parts:
            file = file / part
            if file.is_symlink():
                return None
        return file if file.is_file() and file.stat().st_size <= MAX_TEXT_BYTES else None
