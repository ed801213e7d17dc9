"""How fast the pages answer over a database with many requests, beside the local GitHub that says who may see them.

    python -m benchmarks.pages [--requests 10000] [--times 100] [--database-url URL] [--json FILE]

Every request has a profile, eight events, and four reports as a real one has. One client asks for one page after the other
over HTTP, in a process of its own. `first` is the first answer to that address of a service that has just started and
filled: the diff is made and coloured, the statements are compiled. Bound: 200 ms, for p99 and for `first`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import insert

from app.metrics import Metrics
from app.states import State
from app.store import now
from app.store.requests import request_id
from app.tables import Event, Profile, Request, StoredCandidate, StoredJob
from tests.pages_place import PUBLIC, STORED, PagesPlace, pages_place

REPOSITORIES = 20
BOUND_MS = 200.0
COURSE = (
    "received",
    "understanding",
    "awaiting_approval",
    "acting",
    "verifying",
    "verifying",
    "verifying",
    "in_review",
)


def fill(place: PagesPlace, count: int) -> str:
    """Put requests into the database; returns the id of one that went all the way."""
    chance, started = random.Random(7), now() - timedelta(days=400)  # noqa: S311 - made-up data, always the same
    names = [PUBLIC, *(f"acme/kernels-{number}" for number in range(1, REPOSITORIES))]
    for name in names[1:]:
        place.hub.create_repository("acme", name.split("/")[1])
    profile = STORED["profile"] | {"base_sha": place.base_sha}
    for begin in range(0, count, 500):
        rows: dict[type, list[dict[str, Any]]] = {
            kind: [] for kind in (Request, Profile, StoredCandidate, StoredJob, Event)
        }
        for number in range(begin, min(begin + 500, count)):
            name = chance.choice(names)
            identifier, at = request_id(name, number), started + timedelta(minutes=50 * number)
            common = {"request_id": identifier, "attempt": 1}
            rows[Request].append(_request(place, identifier, name, number, at, chance))
            rows[Profile].append(
                common
                | {"sha256": f"{number:064x}", "body": profile, "created_at": at, "stale_reactions": []}
            )
            rows[StoredCandidate].append(
                common
                | {
                    "round": 0,
                    "body": STORED["candidate"],
                    "head_sha": "b" * 40,
                    "pushed_by": "",
                    "created_at": at,
                }
            )
            rows[StoredJob] += [
                common
                | {
                    "id": f"{identifier}-{job['gate']}",
                    "round": 0,
                    "gate": job["gate"],
                    "nonce": "",
                    "head_sha": "b" * 40,
                    "state": "done",
                    "conclusion": job["conclusion"],
                    "title": job["title"],
                    "report": job["report"],
                    "created_at": at,
                    "finished_at": at,
                }
                for job in STORED["jobs"]
            ]
            rows[Event] += [
                {
                    "request_id": identifier,
                    "at": at + timedelta(seconds=9 * step),
                    "kind": "state",
                    "state": state,
                    "text": "",
                }
                for step, state in enumerate(COURSE)
            ]
        with place.store._session() as session:
            for kind, values in rows.items():
                session.execute(insert(kind), values)
    return next(
        request.id for request in place.store.requests_in([State.in_review]) if request.repository == PUBLIC
    )


def _request(
    place: PagesPlace, identifier: str, name: str, number: int, at: Any, chance: random.Random
) -> dict[str, Any]:
    state = chance.choices(
        ["in_review", "merged", "closed", "failed", "awaiting_approval", "rejected"], [20, 50, 10, 5, 10, 5]
    )[0]
    op = f"op_{chance.randrange(2000)}"
    return {
        "id": identifier,
        "repository": name,
        "installation_id": place.installation_id,
        "issue_number": number,
        "comment_id": number,
        "requester": f"person-{chance.randrange(200)}",
        "requester_id": 7,
        "verb": chance.choice(["dev", "dev", "autopatch"]),
        "op_text": op,
        "op_key": op,
        "live_key": None,
        "state": state,
        "attempt": 1,
        "round": 0,
        "base_sha": place.base_sha,
        "default_branch": "main",
        "branch": "",
        "head_sha": "b" * 40,
        "pull_number": number,
        "pull_url": "",
        "created_at": at,
        "updated_at": at,
    }


def paths(identifier: str, count: int) -> dict[str, str]:
    """What is asked for."""
    one = f"/requests/{identifier}"
    return {
        "list": "/requests",
        "list, last page": f"/requests?page={max(1, count // 50)}",
        "list, by state": "/requests?state=failed",
        "list, a group of states": "/requests?state=waiting",
        "list, by command": "/requests?command=autopatch",
        "list, by repository": f"/requests?repository={PUBLIC}",
        "list, by requester": "/requests?requester=person-7",
        "list, by words": "/requests?text=op_77",
        "list, by words that nothing has": "/requests?text=nothing-like-it",
        "list, by everything": f"/requests?state=ended&command=dev&repository={PUBLIC}&text=op_1",
        "overview": one,
        "profile": f"{one}/profile",
        "diff": f"{one}/diff",
        "reports": f"{one}/reports",
    }


def ask(url: str, what: dict[str, str], times: int) -> dict[str, dict[str, float]]:
    """Milliseconds of each page: the first answer, then median, p99 and maximum of the others, in a mixed order."""
    with httpx.Client(base_url=url, timeout=60) as client:
        first = {name: _timed(client, path) for name, path in what.items()}
        taken: dict[str, list[float]] = {name: [] for name in what}
        for _ in range(times):
            for name, path in what.items():
                taken[name].append(_timed(client, path))
    return {
        name: {
            "first_ms": round(first[name], 1),
            "p50_ms": round(statistics.median(values), 1),
            "p99_ms": round(sorted(values)[int(0.99 * (len(values) - 1))], 1),
            "max_ms": round(max(values), 1),
        }
        for name, values in taken.items()
    }


def _timed(client: httpx.Client, path: str) -> float:
    started = time.perf_counter()
    answer = client.get(path)
    took = 1000 * (time.perf_counter() - started)
    if answer.status_code != httpx.codes.OK:
        raise SystemExit(f"{path} was answered {answer.status_code}: {answer.text[:200]}")
    return took


def metrics_ms(place: PagesPlace) -> dict[str, float]:
    """The first reading, which goes through all history, and the next."""
    metrics = Metrics()
    metrics.watch(place.store.reader(), place.service.live)
    taken = []
    for _ in range(2):
        started = time.perf_counter()
        metrics.text()
        taken.append(round(1000 * (time.perf_counter() - started), 1))
    return {"first_ms": taken[0], "next_ms": taken[1]}


def main() -> None:
    """Measure and print; `--json` writes the same to a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=10_000, help="requests in the database")
    parser.add_argument("--times", type=int, default=100, help="answers of each page")
    parser.add_argument(
        "--database-url", default="", help="an empty database; SQLite in a temporary folder when not given"
    )
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        url, identifier = options.ask.split(" ")
        print(json.dumps(ask(url, paths(identifier, options.requests), options.times)))
        return
    with (
        tempfile.TemporaryDirectory(prefix="liger-bot-pages-") as folder,
        pages_place(Path(folder), database_url=options.database_url) as place,
    ):
        started = time.perf_counter()
        identifier = fill(place, options.requests)
        filled = time.perf_counter() - started
        # the service asks GitHub when it starts, and before its answers get old while somebody looks; here it started empty
        httpx.get(f"{place.url}/requests", timeout=60)
        command = [
            sys.executable,
            "-m",
            "benchmarks.pages",
            "--ask",
            f"{place.url} {identifier}",
            "--times",
            str(options.times),
            "--requests",
            str(options.requests),
        ]
        answered = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        result = {
            "what": "pages over a database with many requests, milliseconds over HTTP",
            "command": f"python -m benchmarks.pages --requests {options.requests} --times {options.times}"
            + (" --database-url URL" if options.database_url else ""),
            "environment": {
                "python": platform.python_version(),
                "platform": platform.platform(),
                "cpu_count": os.cpu_count(),
                "load_average_1_min": round(os.getloadavg()[0], 1),
                "database": place.store._engine.dialect.name,
            },
            "requests": options.requests,
            "repositories": REPOSITORIES,
            "bound_ms": BOUND_MS,
            "filled_in_s": round(filled, 1),
            "pages": answered,
            "metrics": metrics_ms(place),
        }
    print(json.dumps(result, indent=1))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    slow = {name: one for name, one in answered.items() if max(one["p99_ms"], one["first_ms"]) > BOUND_MS}
    if slow:
        raise SystemExit(f"slower than {BOUND_MS:g} ms: {', '.join(slow)}")


if __name__ == "__main__":
    main()
