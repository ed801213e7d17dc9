"""The workflow that a target repository adds, as text. The bot can't push it: Apps without the permission may not."""

from __future__ import annotations

import re
from importlib import resources

WORKFLOW_FILE = "liger-bot-verify.yml"
WORKFLOW_PATH = f".github/workflows/{WORKFLOW_FILE}"
# A version on an index could be replaced by whoever owns the name there; a commit can't.
_PINNED = re.compile(r"(?:[a-z-]+ @ )?git\+https://[A-Za-z0-9./_-]+@[0-9a-f]{40}")


class NotPinnedError(ValueError):
    """The harness is not named by a commit."""


def workflow_text(harness: str = "") -> str:
    """The workflow file. Raises NotPinnedError.

    harness: what pip installs on the runner, `git+https://HOST/OWNER/liger-bot@COMMIT`; empty: runners bring their own.
    """
    if harness and _PINNED.fullmatch(harness) is None:
        raise NotPinnedError(
            "name the harness by its whole commit: git+https://HOST/OWNER/liger-bot@40 hex digits"
        )
    text = resources.files("app.actions").joinpath(WORKFLOW_FILE).read_text(encoding="utf-8")
    return text.replace("@HARNESS@", harness)
