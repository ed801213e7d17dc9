"""What the bot knows of GitHub's things."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class AppIdentity:
    """The App, as GitHub knows it."""

    app_id: int
    slug: str

    @property
    def login(self) -> str:
        return f"{self.slug}[bot]"


@dataclass(frozen=True)
class FailedDelivery:
    """A webhook delivery that we didn't get. `guid` stays the same when it is sent again."""

    id: int
    guid: str
    event: str


@dataclass(frozen=True)
class Branch:
    name: str
    sha: str


@dataclass(frozen=True)
class Comment:
    id: int
    node_id: str
    body: str
    login: str
    created_at: datetime
    updated_at: datetime
    url: str


@dataclass(frozen=True)
class Reaction:
    id: int
    content: str
    login: str
    user_type: str
    created_at: datetime


@dataclass(frozen=True)
class Pull:
    number: int
    url: str
    state: str
    merged: bool
    draft: bool
    head_sha: str
    node_id: str


@dataclass(frozen=True)
class Annotation:
    """A remark on lines of a file, shown in the pull request's diff."""

    path: str
    line: int
    message: str
    level: str  # notice, warning, failure
    title: str = ""


@dataclass(frozen=True)
class Check:
    """What a check run says. `conclusion` None: it is still running."""

    name: str
    external_id: str
    title: str
    summary: str
    text: str = ""
    conclusion: str | None = None
    details_url: str = ""
    annotations: Sequence[Annotation] = ()


def comment_of(raw: Any) -> Comment:
    """From githubkit's model of an issue comment."""
    login = raw.user.login if raw.user else "ghost"
    return Comment(raw.id, raw.node_id, raw.body or "", login, raw.created_at, raw.updated_at, raw.html_url)


def pull_of(raw: Any) -> Pull:
    """From githubkit's model of a pull request."""
    return Pull(
        raw.number, raw.html_url, raw.state, bool(raw.merged_at), bool(raw.draft), raw.head.sha, raw.node_id
    )
