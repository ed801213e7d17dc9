"""Finding a known op by any of its names, and the nearest ones to a misspelt name. Never guesses: `find` is exact."""

from __future__ import annotations

import functools
import re
import unicodedata
from importlib import resources

from rapidfuzz import fuzz, process
from rapidfuzz.distance import DamerauLevenshtein

from agents.catalog.known_op import CatalogError, KnownOp, parse_known_op

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_FILLER = re.compile(r"\b(activation|function|kernel|layer|operator|op)s?\b")
_NOT_A_NAME = re.compile(r"[*+/=<>,|\[\]{}·×]|\w\(")  # `relu*2` is an expression, and no spelling of "relu2"
_LONGEST_NAME = 80  # longer text is not a name; keeps fuzzy matching cheap on a long comment


def normalised(name: str) -> str:
    """The spelling-independent form of a name: "ReLU²", "relu^2" and "relu_2" are all "relu2"."""
    text = unicodedata.normalize("NFKC", name.translate(_SUPERSCRIPTS)).lower()
    text = re.sub(r"[_\-]", " ", text)
    return re.sub(r"[^0-9a-zα-ω]", "", _FILLER.sub(" ", text))


class Catalog:
    """All known ops, by name."""

    def __init__(self, ops: list[KnownOp]):
        """Raises CatalogError when two ops claim the same name."""
        self.ops: dict[str, KnownOp] = {known.op.name: known for known in ops}
        self._by_name: dict[str, KnownOp] = {}
        self._spelling: dict[str, str] = {}
        for known in ops:
            for name in (known.op.name, *known.aliases):
                key = normalised(name)
                other = self._by_name.setdefault(key, known)
                if other is not known:
                    raise CatalogError(f'"{name}" names both {other.op.name} and {known.op.name}')
                self._spelling.setdefault(key, name)

    def find(self, name: str) -> KnownOp | None:
        """The op of exactly that name or alias, in any spelling."""
        if len(name) > _LONGEST_NAME or _NOT_A_NAME.search(name):
            return None
        return self._by_name.get(normalised(name))

    def nearest(self, name: str, limit: int = 3) -> list[str]:
        """Names of the ops most like `name`, best first; empty when nothing is near."""
        key = normalised(name[:_LONGEST_NAME])
        if not key:
            return []
        found: dict[str, float] = {}
        for alias, score, _ in process.extract(
            key, list(self._by_name), scorer=_likeness, limit=25, score_cutoff=55
        ):
            op_name = self._by_name[alias].op.name
            found[op_name] = max(score, found.get(op_name, 0.0))
        return sorted(found, key=lambda op_name: (-found[op_name], op_name))[:limit]

    def mentioned(self, text: str, limit: int = 3) -> list[str]:
        """Names of ops that free text mentions word for word, else the nearest to its words."""
        words = re.findall(r"\w[\w\-²³^]*", text)[:60]
        grams = [" ".join(words[i : i + n]) for n in (3, 2, 1) for i in range(len(words) - n + 1)]
        exact = [known.op.name for gram in grams if len(normalised(gram)) > 2 and (known := self.find(gram))]
        near = (
            [name for gram in grams if len(gram) > 4 for name in self.nearest(gram, 1)] if not exact else []
        )
        return list(dict.fromkeys(exact + near))[:limit]


def _likeness(query: str, choice: str, *, score_cutoff: float | None = None, **_: object) -> float:
    """0..100: edits weigh most; a shared part counts when the names differ in length."""
    edits = 100 * DamerauLevenshtein.normalized_similarity(query, choice)
    part = 0.8 * fuzz.partial_ratio(query, choice) if min(len(query), len(choice)) >= 4 else 0.0
    score = max(edits, part)
    return score if score >= (score_cutoff or 0) else 0.0


@functools.cache
def catalog() -> Catalog:
    """The catalog of this installation. Raises CatalogError when a file of ours is wrong."""
    folder = resources.files("agents.catalog") / "references"
    return Catalog(
        [
            parse_known_op(entry.name.removesuffix(".md"), category.name, entry.read_text(encoding="utf-8"))
            for category in sorted(folder.iterdir(), key=lambda item: item.name)
            if category.is_dir()
            for entry in sorted(category.iterdir(), key=lambda item: item.name)
            if entry.name.endswith(".md")
        ]
    )
