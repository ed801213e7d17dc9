"""What the service adds to a pull request's text."""

from __future__ import annotations

from agents.markdown import cut, plain
from app.comments.limits import MAX_BODY_CHARS


def pull_footer(requester: str, request_id: str, profile_sha256: str, approved_by: str, page_url: str) -> str:
    """What the service adds below a pull request's text."""
    return (
        f"\n\n---\n<sub>Asked for by {plain(requester)}, profile `{profile_sha256[:12]}` approved by {plain(approved_by)} · "
        f"request [`{request_id}`]({page_url}) · a person reviews and merges this</sub>\n"
    )


def pull_text(body: str, footer: str) -> str:
    """A pull request's text within GitHub's limit."""
    return cut(body, MAX_BODY_CHARS - len(footer), "…") + footer
