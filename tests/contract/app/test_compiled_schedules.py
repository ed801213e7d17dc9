"""The table of compiled schedules: made by the real compiler, and added to a waiting profile that people may have answered."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from agents.catalog.lookup import catalog
from agents.dev.schedule_table import NUM_WARPS, Compiled, ScheduleTable
from agents.ports import Bench
from app.derive_compile import compiled_schedules, schedules_for_terminal, table_of
from app.dispatch import LocalBench
from app.github import GitHubApp
from app.stages.understand import compile_schedules
from app.states import State
from app.store import Store
from app.tables import Request
from kernels.derive import derive
from kernels.traced import TracedOp
from tests.contract.app.conftest import FULL_NAME, Place
from tests.contract.app.test_intake import Desk
from tests.contract.kernels.catalog_cases import trace_source
from tests.unit.app.profiles import kernel_profile

ARCHS = ["sm_80", "sm_90", "sm_100", "gfx942"]
TABLE = ScheduleTable(
    rows=[
        Compiled(
            kernel="_relu_squared_forward_kernel",
            schedule="flat",
            num_warps=4,
            at="4096 columns bfloat16",
            arch="sm_90",
            registers=18,
            spill_bytes=0,
            shared_bytes=0,
            occupancy=1.0,
            chosen=True,
        )
    ]
)
HEADING = "Every schedule considered, compiled offline"


@pytest.fixture
def desk(place: Place, github: GitHubApp, store: Store, tmp_path: Path) -> Desk:
    return Desk(place, github, store, tmp_path / "data")


@pytest.fixture(scope="module")
def traced() -> TracedOp:
    return trace_source(catalog().ops["relu_squared"].op)


def comment_id(desk: Desk, request: Request) -> int:
    profile = desk.store.profile(request.id)
    assert profile is not None
    assert profile.comment_id is not None
    return profile.comment_id


def state(desk: Desk, request: Request) -> State:
    return State(desk.store.request(request.id).state)


async def compile_with(desk: Desk, request: Request, bench: Bench) -> None:
    await compile_schedules(replace(desk.ports, spare_bench=bench), request.id)


async def test_every_schedule_is_compiled_for_every_architecture(traced: TracedOp):
    found = await compiled_schedules(traced, derive(traced), LocalBench(), widths=(1024,))
    assert found.note == ""
    assert found.archs == ARCHS
    forward = [row for row in found.rows if "_forward_" in row.kernel and row.arch == "sm_90"]
    (chosen,) = [row for row in forward if row.chosen]
    assert {row.num_warps for row in forward if not row.chosen} == set(NUM_WARPS) - {chosen.num_warps}
    assert {row.schedule for row in forward} == {"flat"}
    assert all(row.registers > 0 and 0 < row.occupancy <= 1 for row in found.rows)
    console = Console(width=200, record=True)
    console.print(table_of(found))
    text = console.export_text()
    assert all(arch in text for arch in ARCHS)
    assert "Nothing spills under the chosen schedules." in text


async def test_a_job_that_takes_too_long_is_one_line(traced: TracedOp):
    found = await compiled_schedules(traced, derive(traced), LocalBench(), deadline_s=0.5)
    assert found == ScheduleTable(note="not done within 0.5 s")


async def test_a_terminal_is_told_when_no_runner_starts(traced: TracedOp):
    profile = kernel_profile(traced=traced.model_dump(mode="json"))
    shown = await schedules_for_terminal(profile, LocalBench("/nowhere/python"))
    assert (
        shown == "the schedules could not be compiled: can't start /nowhere/python: No such file or directory"
    )


async def test_a_thumb_given_before_the_table_came_still_counts(desk: Desk):
    request = await desk.waiting()
    before = desk.bodies()
    desk.place.react(comment_id(desk, request), "+1")
    desk.store.schedules_compiled(request.id, 1, TABLE.model_dump(mode="json"))
    await desk.ports.status.extend_profile(request.id)
    after = desk.bodies()
    assert HEADING not in before[0]
    assert HEADING in after[0]
    assert len(after) == 1
    assert kernel_profile().sha256()[:12] in after[0]
    await desk.approvals.read(request.id)
    assert state(desk, request) is State.acting
    assert len(desk.bodies()) == 1, "nobody was told that the comment was edited"


async def test_a_thumb_read_while_the_table_is_being_added_counts(desk: Desk):
    request = await desk.waiting()
    desk.place.react(comment_id(desk, request), "+1")
    desk.store.profile_extended(request.id, 1, "0" * 64)  # noted, and the edit is still to come
    await desk.approvals.read(request.id)
    assert state(desk, request) is State.acting


async def test_a_comment_that_someone_edited_is_left_for_the_reader_of_answers(desk: Desk):
    request = await desk.waiting()
    number = comment_id(desk, request)
    with desk.place.as_user("maintainer") as client:
        client.patch(
            f"/repos/{FULL_NAME}/issues/comments/{number}", json={"body": "something else"}
        ).raise_for_status()
    desk.place.react(number, "+1")
    desk.store.schedules_compiled(request.id, 1, TABLE.model_dump(mode="json"))
    await desk.ports.status.extend_profile(request.id)
    assert desk.bodies() == ["something else"]
    await desk.approvals.read(request.id)
    assert state(desk, request) is State.awaiting_approval
    assert HEADING in desk.bodies()[0], "shown again, with the table"


async def test_without_a_runner_the_profile_stands_and_says_so(desk: Desk, traced: TracedOp):
    request = await desk.waiting(kernel_profile(traced=traced.model_dump(mode="json")))
    await compile_with(desk, request, LocalBench("/nowhere/python"))
    (body,) = desk.bodies()
    assert "The schedules could not be compiled: the service failed at it, which is our fault." in body
    assert HEADING not in body
    desk.place.react(comment_id(desk, request), "+1")
    await desk.approvals.read(request.id)
    assert state(desk, request) is State.acting


async def test_an_answer_ends_the_compiling(desk: Desk, traced: TracedOp):
    request = await desk.waiting(kernel_profile(traced=traced.model_dump(mode="json")))
    compiling = asyncio.create_task(compile_with(desk, request, LocalBench()))
    await asyncio.sleep(0.5)
    await desk.says("/liger approve")
    await compiling
    profile = desk.store.profile(request.id)
    assert profile is not None
    assert profile.schedules is None
    assert state(desk, request) is State.acting
