"""What it costs to watch many profiles that wait for an answer: calls to GitHub by kind, against its hourly limits.

    python -m benchmarks.approvals [--pending 1000] [--strangers 50] [--seconds 120] [--store sqlite|postgres] [--json FILE]

One real request is taken to its profile and copied, each copy with an issue and a comment of its own on the local
GitHub. All profiles are fresh, the worst case, and are polled as github.com would be (every 15 s). `strangers` of them
carry a 👍 that doesn't count. What the service does first, catching up with what it missed, is counted apart. At the end one
is approved by a reaction, and timed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy.orm import Session, make_transient

from app.comments.status import body_sha256
from app.database import open_database
from app.github import GitHubApp
from app.localhub import LocalHub
from app.settings import Settings
from app.store import now
from app.tables import Profile, Request
from benchmarks.faults import RESULTS, environment
from benchmarks.service import spread
from tests.liger_checkout import liger_checkout
from tests.postgres_server import postgres_server
from tests.service_process import Scene, scene, wait_for

LIMIT_AN_HOUR = 5_000  # of an installation: REST requests, and points of GraphQL, each
POLL_S = "15"
OLDER_POLL_S = 60.0  # of profiles that are older than ten minutes


class Calls:
    """Counts what is asked of the local GitHub, by method and route."""

    def __init__(self) -> None:
        self.by_route: Counter[str] = Counter()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Every local GitHub that is made meanwhile is counted."""
        made = LocalHub.application

        def application(hub: LocalHub, url: str) -> Any:
            inner = made(hub, url)

            async def counted(scope: Any, receive: Any, send: Any) -> None:
                if scope["type"] == "http" and b"liger-bot" in dict(scope["headers"]).get(b"user-agent", b""):
                    path = re.sub(r"/\d+", "/N", scope["path"].removeprefix("/api/v3"))
                    self.by_route[f"{scope['method']} {path}"] += 1
                await inner(scope, receive, send)

            return counted

        LocalHub.application = application  # type: ignore[method-assign]
        try:
            yield
        finally:
            LocalHub.application = made  # type: ignore[method-assign]

    @property
    def graphql(self) -> int:
        return sum(count for route, count in self.by_route.items() if "graphql" in route)

    @property
    def rest(self) -> int:
        return self.by_route.total() - self.graphql


async def copy_pending(here: Scene, url: str, count: int) -> list[int]:
    """Make `count` copies of the one pending request; returns the ids of their profiles' comments."""
    settings = _settings(here)
    github = GitHubApp(settings.app_id, settings.private_key.get_secret_value(), settings.github_url)
    repository = github.repository(here.installation_id, here.repository)
    engine = open_database(url)
    with Session(engine) as session:
        (request,), (profile,) = session.query(Request).all(), session.query(Profile).all()
        session.expunge_all()
        body = (await repository.comment(profile.comment_id or 0)).body
    original, made = request.id, []
    for number in range(count):
        issue = here.open_issue(f"copy {number}")
        identifier = f"c{number:06d}"
        text = body.replace(original, identifier)
        comment = await repository.create_comment(issue, text)
        make_transient(request)
        make_transient(profile)
        request.id, request.issue_number, request.comment_id = identifier, issue, 10_000_000 + number
        request.live_key, request.status_comment_id = f"copy {number}", comment.id
        profile.request_id, profile.comment_id = identifier, comment.id
        profile.body_sha256, profile.earlier_body_sha256 = body_sha256(text), None
        profile.comment_node_id, profile.shown_at, profile.created_at = comment.node_id, now(), now()
        with Session(engine, expire_on_commit=False) as session, session.begin():
            session.add(request)
            session.flush()
            session.add(profile)
            session.flush()
            session.expunge_all()
        made.append(comment.id)
    engine.dispose()
    await github.close()
    return made


def _settings(here: Scene) -> Settings:
    names = {name.removeprefix("LIGER_BOT_").lower(): value for name, value in here.service.environment.items() if name.startswith("LIGER_BOT_")}  # fmt: skip
    return Settings(**names)


def health_times(here: Scene, seconds: float) -> list[float]:
    """Answer times of /readyz meanwhile: it needs the event loop and the database, as a delivery does."""
    times, end = [], time.monotonic() + seconds
    with httpx.Client(timeout=30) as client:
        while time.monotonic() < end:
            started = time.perf_counter()
            client.get(f"{here.service.url}/readyz").raise_for_status()
            times.append(time.perf_counter() - started)
            time.sleep(0.1)
    return times


def catch_up(here: Scene, calls: Calls) -> Calls:
    """Wait until nothing is caught up with any more, and strangers' answers have been judged; returns what that took."""
    total = Calls()
    while True:
        health_times(here, 2 * float(POLL_S))
        missed = sum(count for route, count in calls.by_route.items() if route.endswith("/attempts"))
        total.by_route += calls.by_route
        calls.by_route.clear()
        if not missed:
            return total


def make_fresh(url: str) -> None:
    """Say that all profiles were shown just now: those of more than ten minutes are looked at more seldom."""
    engine = open_database(url)
    with Session(engine) as session, session.begin():
        session.query(Profile).update({Profile.shown_at: now()})
    engine.dispose()


def main() -> int:
    """Measure, print, and write the result; exit code 1 when a limit would be passed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pending", type=int, default=1000)
    parser.add_argument("--strangers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    calls, before = Calls(), os.getloadavg()
    with tempfile.TemporaryDirectory() as name, postgres_server(durable=True) as server, calls.watching():
        folder = Path(name)
        url = f"sqlite:///{folder}/data/liger-bot.sqlite"
        settings = {"POLL_SECONDS": POLL_S}
        if options.store == "postgres":
            url = settings["DATABASE_URL"] = server.new_database("approvals")
        with scene(folder, liger_checkout(folder / "files"), **settings) as here:
            issue = here.open_issue()
            here.comment(issue, "/liger dev relu2")
            here.wait_for_comment(issue, "waiting for your decision", 120)
            here.service.stop()
            comments = asyncio.run(copy_pending(here, url, options.pending - 1))
            for comment in comments[: options.strangers]:
                here.react(comment, "+1", "stranger")
            here.service.start()
            started = time.perf_counter()
            caught_up = catch_up(here, calls)
            caught_up_s = time.perf_counter() - started
            make_fresh(url)
            health_times(here, OLDER_POLL_S)
            calls.by_route.clear()
            times = health_times(here, options.seconds)
            measured = Calls()
            measured.by_route = calls.by_route.copy()
            started = time.perf_counter()
            here.react(comments[-1])
            wait_for(lambda: "approved by" in _bodies(here, comments[-1]) or "Approved" in _bodies(here, comments[-1]), 90, "the approval was seen")  # fmt: skip
            noticed = time.perf_counter() - started
    hourly = 3600 / options.seconds
    graphql, rest = round(measured.graphql * hourly), round(measured.rest * hourly)
    text = json.dumps(
        {
            "environment": environment(options.store, before, os.getloadavg()),
            "pending": options.pending,
            "with_a_strangers_reaction": options.strangers,
            "polled_every_s": float(POLL_S),
            "measured_for_s": options.seconds,
            "calls": dict(measured.by_route.most_common()),
            "before_it": {
                "why": "the service was down while the issues were made: missed deliveries, each of which is a reason to look",
                "seconds": round(caught_up_s, 1),
                "rest_requests": caught_up.rest,
                "graphql_queries": caught_up.graphql,
            },
            "graphql_queries_an_hour": graphql,
            "rest_requests_an_hour": rest,
            "limit_an_hour_each": LIMIT_AN_HOUR,
            "reaction_to_start_s": round(noticed, 1),
            "readyz": spread(times),
        },
        indent=2,
    )
    print(text)
    target = options.json or RESULTS / f"approvals-{options.store}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text + "\n", encoding="utf-8")
    return int(graphql > LIMIT_AN_HOUR or rest > LIMIT_AN_HOUR)


def _bodies(here: Scene, comment: int) -> str:
    return here.call("GET", f"/issues/comments/{comment}")["body"]


if __name__ == "__main__":
    sys.exit(main())
