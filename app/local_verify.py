"""Verify in a local checkout: the newest candidate committed, its gates two at a time, and a repair of what failed."""

from __future__ import annotations

import asyncio
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console

from agents.command_agent import AnyProfile, CommandAgent, Payload, Place, nothing_to_judge
from agents.ports import Bench, ModelError
from app import terminal
from app.policy import REPAIR_ROUNDS, branch_name
from app.repository import Identity, TargetRepository
from runners.protocol import Gate, Job, Progress

if TYPE_CHECKING:
    from app.local_run import Record

AUTHOR = Identity("liger-bot", "liger-bot@users.noreply.github.com")
GATES_AT_ONCE = 2
GATE_DEADLINE_S = 900.0


async def verify(
    record: Record,
    target: TargetRepository,
    agent: CommandAgent[Any, Any],
    profile: AnyProfile,
    bench: Bench,
    console: Console,
) -> None:
    """Run every gate of the record's candidate, and put reports and checks into the record."""
    checkout = await asyncio.to_thread(target.checkout, record.commit)
    jobs = agent.plan(profile, record.candidate, str(checkout), record.commit, secrets.randbelow(2**31))
    slots = asyncio.Semaphore(GATES_AT_ONCE)
    with terminal.gates(console, list(jobs)) as live:

        async def one(gate: Gate, payload: Payload) -> None:
            job = Job(
                id=f"{record.commit[:12]}-{gate.value}",
                nonce=secrets.token_hex(16),
                deadline_s=GATE_DEADLINE_S,
                payload=payload,
            )
            async with slots:
                live.start(gate)

                async def on_progress(progress: Progress) -> None:
                    live.progress(gate, progress)

                report = await bench.run(job, on_progress)
            record.reports[gate.value] = report
            record.checks[gate.value] = agent.judge(gate, report, profile)
            live.done(gate, record.checks[gate.value])

        await asyncio.gather(*(one(gate, payload) for gate, payload in jobs.items()))
    for gate in Gate:
        if gate not in jobs:
            record.checks[gate.value] = nothing_to_judge(gate, agent.without_job)


def commit(record: Record, target: TargetRepository, profile: AnyProfile, subject: str) -> None:
    """One commit on a branch of the person's repository, a repair on top of it; their working tree and branch stay as they are."""
    candidate = record.candidate
    assert candidate is not None  # noqa: S101 - set by both callers
    listed = [one.path for one in profile.files]
    message = f"{candidate.commit_message.rstrip()}\n\nProfile: {profile.sha256()}\n"
    parent = record.commit or record.base_sha
    record.commit = target.commit(
        parent, candidate.files, listed=listed, message=message, author=AUTHOR, at=datetime.now(UTC)
    )
    record.branch = record.branch or branch_name(subject, record.commit[:7], 1)
    target.push(record.commit, record.branch, "")


async def repaired(
    record: Record,
    target: TargetRepository,
    agent: CommandAgent[Any, Any],
    profile: AnyProfile,
    place: Place,
    console: Console,
) -> bool:
    """Whether another candidate was committed in the place of one that a gate failed; at most three times."""
    record.attempts.append(
        {
            "commit": record.commit,
            "checks": {gate: f"{one.conclusion}: {one.title}" for gate, one in record.checks.items()},
        }
    )
    round_ = len(record.attempts)
    if round_ > REPAIR_ROUNDS or record.passes:
        return False
    reports = {Gate(gate): report for gate, report in record.reports.items()}
    try:
        made = await agent.repair(profile, record.candidate, reports, place, round_)
    except ModelError as error:
        console.print(
            f"the model could not be asked for a repair: {error}",
            style="yellow",
            highlight=False,
            markup=False,
        )
        return False
    if made is None or record.candidate is None or made.files == record.candidate.files:
        return False
    record.candidate = made
    await asyncio.to_thread(commit, record, target, profile, agent.subject(profile))
    console.print(f"Repair {round_}: {record.commit[:12]} on branch [bold]{record.branch}[/]")
    record.reports.clear()
    record.checks.clear()
    return True
