"""What is read of webhook deliveries: small models that take what they need and ignore the rest."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Number = Annotated[int, Field(ge=0, lt=2**63)]  # what a column holds
# Both become parts of addresses of GitHub's API.
Login = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_\[\]-]{0,99}$")]
FullName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,100}/\.{0,2}[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}$")]


class NotYetError(Exception):
    """What a delivery is about is just being made; it is processed again in a moment."""


class Part(BaseModel):
    """A part of a payload. GitHub adds fields all the time, so unknown ones are ignored."""

    model_config = ConfigDict(extra="ignore")


class Account(Part):
    login: Login
    id: Number
    type: str


class App(Part):
    id: Number


class Repository(Part):
    full_name: FullName


class Installation(Part):
    id: Number


class Event(Part):
    """What every event that we read carries."""

    action: str
    sender: Account
    repository: Repository
    installation: Installation


class Issue(Part):
    number: Number


class Comment(Part):
    id: Number
    body: str | None = None
    user: Account | None = None
    created_at: datetime
    performed_via_github_app: App | None = None


class IssueCommentEvent(Event):
    issue: Issue
    comment: Comment


class IssuesEvent(Event):
    issue: Issue


class Head(Part):
    sha: str


class Pull(Part):
    number: Number
    merged: bool = False
    merge_commit_sha: str | None = None
    head: Head | None = None


class PullRequestEvent(Event):
    pull_request: Pull


class CheckRun(Part):
    external_id: str | None = None


class CheckRunEvent(Event):
    check_run: CheckRun


class CheckSuite(Part):
    head_sha: str


class CheckSuiteEvent(Event):
    check_suite: CheckSuite


class WorkflowRun(Part):
    id: Number
    display_title: str = ""


class WorkflowRunEvent(Event):
    workflow_run: WorkflowRun


class WorkflowJob(Part):
    run_id: Number


class WorkflowJobEvent(Event):
    workflow_job: WorkflowJob


MODELS: dict[str, type[Event]] = {
    "issue_comment": IssueCommentEvent,
    "issues": IssuesEvent,
    "pull_request": PullRequestEvent,
    "check_run": CheckRunEvent,
    "check_suite": CheckSuiteEvent,
    "workflow_run": WorkflowRunEvent,
    "workflow_job": WorkflowJobEvent,
}


def subject_of(event: str, payload: Mapping[str, Any]) -> str:
    """What a delivery tells of, where that must be followed once only: a comment that was written. Else empty."""
    if event != "issue_comment" or payload.get("action") != "created":
        return ""
    try:
        return comment_subject(str(payload["repository"]["full_name"]), int(payload["comment"]["id"]))
    except (KeyError, TypeError, ValueError):
        return ""


def comment_subject(full_name: str, comment_id: int) -> str:
    return f"{full_name[:200]} comment {comment_id}"
