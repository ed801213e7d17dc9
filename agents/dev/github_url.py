"""A link to code on GitHub -> owner, repository, ref, path and lines. Pure; app fetches the text."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from pydantic import Field

from agents.dev.refused import Mistake
from kernels.op_spec import Frozen

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LINES = re.compile(r"L(\d{1,6})(?:C\d+)?(?:-L?(\d{1,6})(?:C\d+)?)?")


class GitHubUrl(Frozen):
    """A file on the host that the app is configured for."""

    url: str
    owner: str
    repo: str
    ref: str = Field(
        description="branch, tag or commit; the first path component, so a branch with a slash needs a permalink"
    )
    path: str
    first_line: int | None = None
    last_line: int | None = None

    @property
    def lines(self) -> tuple[int, int] | None:
        """The selected lines, both included, or None for the whole file."""
        return None if self.first_line is None else (self.first_line, self.last_line or self.first_line)


class FetchedReference(Frozen):
    """The text behind a GitHubUrl, as the app read it through the API."""

    url: GitHubUrl
    text: str
    commit: str = Field(default="", description="the commit that `ref` pointed to when it was read")


def is_url(text: str) -> bool:
    """Whether the words are one web address."""
    return bool(re.fullmatch(r"<?https?://\S+>?", text.strip()))


def parse_github_url(text: str, host: str = "github.com") -> GitHubUrl:
    """Parse a blob or raw link. `host`: what the app is configured for, with port. Raises Mistake."""
    url = text.strip().strip("<>")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise Mistake("The address is not a valid URL.") from error
    segments = [unquote(segment) for segment in parts.path.split("/") if segment]
    if parts.netloc.lower() == "raw.githubusercontent.com" and host == "github.com" and len(segments) >= 4:
        owner, repo, ref, path = segments[0], segments[1], segments[2], segments[3:]
        if path[0] == "heads" and ref == "refs" and len(path) >= 3:
            ref, path = path[1], path[2:]
    elif parts.netloc.lower() != host.lower():
        raise Mistake(
            f"Only links to {host} are read.",
            needed=f"https://{host}/OWNER/REPO/blob/REF/PATH.py#L10-L40, or paste the code as a ```python block.",
        )
    elif len(segments) >= 5 and segments[2] in {"blob", "raw", "blame"}:
        owner, repo, ref, path = segments[0], segments[1], segments[3], segments[4:]
    else:
        raise Mistake(
            "The link does not point to a file.", needed=f"https://{host}/OWNER/REPO/blob/REF/PATH.py#L10-L40"
        )
    # unquoted, a part may hold a slash of its own, which a ref may and a path may not
    if (
        not (_NAME.fullmatch(owner) and _NAME.fullmatch(repo))
        or any(part in {"..", "."} or set("\0/\\") & set(part) for part in path)
        or {"..", "."} & set(ref.split("/"))
    ):
        raise Mistake("The link has an owner, repository or path that GitHub does not allow.")
    if not path[-1].endswith(".py"):
        raise Mistake("The link does not point to a Python file.")
    match = _LINES.fullmatch(parts.fragment)
    if parts.fragment.startswith("L") and match is None:
        raise Mistake(f"The line numbers `#{parts.fragment[:40]}` are not understood; use `#L10-L40`.")
    first = int(match[1]) if match else None
    last = int(match[2]) if match and match[2] else first
    if first and last and last < first:
        first, last = last, first
    return GitHubUrl(
        url=url, owner=owner, repo=repo, ref=ref, path="/".join(path), first_line=first, last_line=last
    )
