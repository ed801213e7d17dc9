"""Addresses and node ids as GitHub Enterprise Server forms them: one host, the API below /api/v3."""

import base64
import binascii
from dataclasses import dataclass

# Prefixes of GitHub's global node ids.
NODE_PREFIX = {
    "account": "U",
    "bot": "BOT",
    "organization": "O",
    "app": "A",
    "repository": "R",
    "issue": "I",
    "pull": "PR",
    "comment": "IC",
    "reaction": "REA",
    "label": "LA",
    "review": "PRR",
    "check_suite": "CS",
    "check_run": "CR",
    "workflow": "W",
    "workflow_run": "WFR",
    "artifact": "MDg6QXJ0aWZhY3Q",
}


def node_id(kind: str, number: int) -> str:
    """The opaque global id of row `number` of `kind`."""
    packed = base64.urlsafe_b64encode(number.to_bytes(8, "big")).decode().rstrip("=")
    return f"{NODE_PREFIX[kind]}_kwDO{packed}"


def parse_node_id(text: str) -> tuple[str, int] | None:
    """The kind and row of a node id, or None if this hub never made it."""
    prefix, separator, packed = text.partition("_kwDO")
    kinds = {value: key for key, value in NODE_PREFIX.items()}
    if not separator or prefix not in kinds:
        return None
    try:
        raw = base64.urlsafe_b64decode(packed + "=")
    except (binascii.Error, ValueError):
        return None
    return (kinds[prefix], int.from_bytes(raw, "big")) if len(raw) == 8 else None


@dataclass(frozen=True)
class Links:
    """Absolute addresses below `base`, the hub's address without a trailing slash."""

    base: str

    def api(self, path: str) -> str:
        """The REST address of `path`."""
        return f"{self.base}/api/v3/{path.lstrip('/')}"

    def page(self, path: str) -> str:
        """The address of a page for people."""
        return f"{self.base}/{path.lstrip('/')}"
