"""What the page of one request shows."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

import yaml

from app.comments.status import StageLine
from app.ports import Ports
from app.request_view import command_of, stage_lines
from app.states import LIVE, State
from app.store import now
from app.tables import Approval, Event, Profile, Request, StoredJob
from runners.protocol import Report


@dataclass(frozen=True)
class JobPage:
    """One gate's job and its report."""

    job: StoredJob
    report: Report | None

    @property
    def elapsed_s(self) -> float | None:
        if self.job.finished_at is None:
            return None
        return (self.job.finished_at - self.job.created_at).total_seconds()


@dataclass(frozen=True)
class RequestPage:
    """Everything about one request."""

    request: Request
    command: str
    live: bool
    issue_url: str
    stages: list[StageLine]
    profile: Profile | None
    profile_yaml: str
    approval: Approval | None
    jobs: list[JobPage]
    events: list[Event]


def request_page(ports: Ports, request_id: str) -> RequestPage | None:
    """The page's contents; None when there is no such request."""
    store = ports.store
    request = store.find_request(request_id)
    if request is None:
        return None
    events, profile = store.events(request_id), store.profile(request_id)
    jobs = [
        JobPage(job, Report.model_validate(job.report) if job.report else None)
        for job in store.jobs(request_id)
    ]
    return RequestPage(
        request=request,
        command=command_of(request),
        live=State(request.state) in LIVE,
        issue_url=f"{ports.settings.github_web_url.rstrip('/')}/{quote(request.repository)}/issues/{request.issue_number}",
        stages=stage_lines(request, events, now()),
        profile=profile,
        profile_yaml=_yaml(profile),
        approval=store.approval(request_id, profile.sha256) if profile else None,
        jobs=jobs,
        events=events,
    )


def _yaml(profile: Profile | None) -> str:
    if profile is None:
        return ""
    body = {key: value for key, value in profile.body.items() if key != "traced"}
    return yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=110)
