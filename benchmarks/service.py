"""How fast the service answers and how long a request takes, on this machine, against the local GitHub.

    python -m benchmarks.service [--store sqlite|postgres] [--rate 100] [--seconds 60] [--requests 3] [--json FILE]

On SQLite one process does everything; on Postgres (which syncs at each commit) two workers run the stages.

Deliveries are signed issue comments without a command: what a busy repository sends most. They come from a process of
their own, at a fixed rate (open loop), and as fast as 16 connections carry them.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import hmac
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import text

from app.database import open_database
from benchmarks.faults import RESULTS, environment
from tests.liger_checkout import liger_checkout
from tests.postgres_server import postgres_server
from tests.service_process import SECRET, Scene, scene, wait_for

CONNECTIONS = 16


def delivery(repository: str) -> tuple[bytes, dict[str, str]]:
    """One signed delivery of a comment that holds no command."""
    person = {"login": "maintainer", "id": 1, "type": "User"}
    payload = {
        "action": "created",
        "issue": {"number": 1},
        "comment": {
            "id": uuid.uuid4().int >> 80,  # each of another comment: one that is told twice is followed once
            "body": "Looks good to me. " * 20,
            "user": person,
            "created_at": "2026-01-01T00:00:00Z",
            "performed_via_github_app": None,
        },
        "repository": {"full_name": repository},
        "installation": {"id": 1},
        "sender": person,
    }
    body = json.dumps(payload).encode()
    signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    return body, {
        "X-GitHub-Event": "issue_comment",
        "X-GitHub-Delivery": str(uuid.uuid4()),
        "X-Hub-Signature-256": f"sha256={signature}",
    }


async def send(client: httpx.AsyncClient, url: str, repository: str) -> float:
    """Seconds until a delivery was answered with 202."""
    body, headers = delivery(repository)
    started = time.perf_counter()
    answer = await client.post(url, content=body, headers=headers)
    took = time.perf_counter() - started
    if answer.status_code != httpx.codes.ACCEPTED:
        raise SystemExit(f"a delivery was answered {answer.status_code}: {answer.text[:200]}")
    return took


def processed(here: Scene, url: str, count: int) -> float:
    """Seconds until all `count` deliveries are processed, not only kept."""
    started, engine = time.perf_counter(), open_database(url)
    query = text("select count(*) from deliveries where state = 'done' and event = 'issue_comment'")

    def all_done() -> bool:
        with engine.connect() as connection:
            return connection.execute(query).scalar_one() >= count

    wait_for(all_done, 600, f"{count} deliveries are processed; {here.service.log.read_text()[-2000:]}")
    engine.dispose()
    return time.perf_counter() - started


async def at_rate(url: str, repository: str, rate: float, seconds: float) -> list[float]:
    """Answer times when deliveries come at a fixed rate, whether or not the last one was answered."""
    limits = httpx.Limits(max_connections=200, max_keepalive_connections=200)
    async with httpx.AsyncClient(limits=limits, timeout=30) as client:
        tasks = []
        started = time.perf_counter()
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, started + number / rate - time.perf_counter()))
            tasks.append(asyncio.create_task(send(client, url, repository)))
        return await asyncio.gather(*tasks)


async def flat_out(url: str, repository: str, count: int) -> tuple[list[float], float]:
    """Answer times and deliveries a second when a few connections send without a pause."""
    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=CONNECTIONS), timeout=30) as client:

        async def one() -> list[float]:
            return [await send(client, url, repository) for _ in range(count // CONNECTIONS)]

        started = time.perf_counter()
        times = [took for part in await asyncio.gather(*(one() for _ in range(CONNECTIONS))) for took in part]
        return times, len(times) / (time.perf_counter() - started)


def spread(times: list[float]) -> dict[str, float]:
    """Median, p99 and maximum in milliseconds."""
    ordered = sorted(times)
    return {
        "n": len(ordered),
        "p50_ms": round(1000 * statistics.median(ordered), 2),
        "p99_ms": round(1000 * ordered[int(0.99 * (len(ordered) - 1))], 2),
        "max_ms": round(1000 * ordered[-1], 2),
    }


def one_request(here: Scene, op: str) -> dict[str, float]:
    """Seconds of each part of one request, as a person sees them."""
    issue = here.open_issue(op)
    started = time.perf_counter()
    command = here.comment(issue, f"/liger dev {op}")
    here.wait_for_reaction(command, "eyes", 60)
    eyes = time.perf_counter() - started
    status = here.wait_for_comment(issue, "waiting for your decision", 120)
    profile = time.perf_counter() - started
    before = len(here.call("GET", "/pulls", params={"state": "all"}))
    here.react(status["id"])
    started = time.perf_counter()
    wait_for(
        lambda: len(here.call("GET", "/pulls", params={"state": "all"})) > before, 120, "the pull request"
    )
    pull = time.perf_counter() - started
    started = time.perf_counter()
    here.wait_for_comment(issue, "ready for review", 300)
    return {
        "comment_to_eyes_s": eyes,
        "comment_to_profile_s": profile,
        "approval_to_pull_s": pull,
        "pull_to_verdict_s": time.perf_counter() - started,
    }


def main() -> None:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=float, default=100.0, help="deliveries a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--requests", type=int, default=3, help="whole requests to time")
    parser.add_argument(
        "--json", type=Path, help="write the results here; default: benchmarks/results/service"
    )
    parser.add_argument("--load", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        url, repository = options.load.split(" ")
        fixed = asyncio.run(at_rate(url, repository, options.rate, options.seconds))
        times, throughput = asyncio.run(flat_out(url, repository, 2000))
        print(
            json.dumps(
                {
                    "at_rate": {"rate_per_s": options.rate, **spread(fixed)},
                    "flat_out": {"per_s": round(throughput, 1), **spread(times)},
                }
            )
        )
        return
    before = os.getloadavg()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url, settings, workers = f"sqlite:///{folder}/data/liger-bot.sqlite", {}, 0
        if options.store == "postgres":
            server = stack.enter_context(postgres_server(durable=True))
            url, workers = server.new_database("service"), 2
            settings = {"DATABASE_URL": url}
        here = stack.enter_context(
            scene(folder, liger_checkout(folder / "files"), workers=workers, WORKER_SLOTS="2", **settings)
        )
        requests = [
            one_request(here, op)
            for op in ("relu2", "mish", "squareplus", "quick_gelu", "hardswish")[: options.requests]
        ]
        load = subprocess.run(
            [sys.executable, "-m", "benchmarks.service", "--load", f"{here.service.url}/webhook {here.repository}", "--rate", str(options.rate), "--seconds", str(options.seconds)],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        deliveries = json.loads(load.stdout)
        sent = deliveries["at_rate"]["n"] + deliveries["flat_out"]["n"]
        deliveries["processed_s_after_the_last"] = round(processed(here, url, sent), 1)
    medians = {key: round(statistics.median(one[key] for one in requests), 2) for key in requests[0]}
    result: dict[str, Any] = {
        "environment": environment(options.store, before, os.getloadavg()),
        "deliveries": deliveries,
        "request_medians": {"n": len(requests), **medians},
        "requests": [{key: round(value, 2) for key, value in one.items()} for one in requests],
    }
    printed = json.dumps(result, indent=2)
    print(printed)
    target = options.json or RESULTS / f"load-{options.store}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(printed + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
