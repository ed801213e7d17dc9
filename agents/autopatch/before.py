"""A checkout as it was before a candidate, whether or not the candidate's files are in it. Pure."""

from __future__ import annotations

from agents.autopatch.model_candidate import ModelCandidate
from agents.ports import Tree


class BeforeTree:
    """The tree without what the candidate created, and with what it edited as it was."""

    def __init__(self, tree: Tree, candidate: ModelCandidate):
        self._tree, self._originals, self._created = tree, candidate.originals, set(candidate.created)

    def read(self, path: str) -> str | None:
        """Text of a file before the candidate; None when there was none."""
        if path in self._created:
            return None
        return self._originals[path] if path in self._originals else self._tree.read(path)

    def files(self, pattern: str) -> list[str]:
        """Sorted paths that match and were there before the candidate."""
        return [path for path in self._tree.files(pattern) if path not in self._created]
