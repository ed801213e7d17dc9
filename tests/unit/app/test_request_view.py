"""What the tables say about a request, as people are shown it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from app.request_view import command_of, gate_lines, stage_lines, stage_seconds
from app.states import Stage, State
from app.tables import Event, Request, StoredJob

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def history(*moves: tuple[int, State]) -> list[Event]:
    return [
        Event(request_id="r", at=START + timedelta(seconds=second), kind="state", state=state, text="")
        for second, state in moves
    ]


def request(**values: object) -> Request:
    return Request(
        **(
            {"id": "r", "verb": "dev", "op_text": "relu2", "state": State.in_review, "attempt": 1, "round": 0}
            | values
        )
    )


def job(gate: str, **values: object) -> StoredJob:
    return StoredJob(
        **(
            {
                "gate": gate,
                "attempt": 1,
                "round": 0,
                "state": "done",
                "conclusion": "success",
                "title": "fine",
            }
            | values
        )
    )


def test_a_stage_lasts_from_its_first_state_to_the_next_stage():
    events = history(
        (0, State.received),
        (1, State.understanding),
        (6, State.awaiting_approval),
        (60, State.acting),
        (63, State.verifying),
        (90, State.in_review),
    )
    assert stage_seconds(events, START) == {Stage.understand: 6.0, Stage.act: 3.0, Stage.verify: 27.0}


def test_a_stage_that_ran_twice_shows_its_last_run():
    events = history(
        (0, State.understanding),
        (5, State.awaiting_approval),
        (100, State.revising),
        (102, State.awaiting_approval),
    )
    assert stage_seconds(events, START)[Stage.understand] == 2.0


def test_repairs_belong_to_verifying():
    events = history(
        (0, State.verifying), (10, State.repairing), (12, State.verifying), (30, State.in_review)
    )
    assert stage_seconds(events, START)[Stage.verify] == 30.0


def test_a_running_stage_has_lasted_until_now():
    assert stage_seconds(history((0, State.acting)), START + timedelta(seconds=4)) == {Stage.act: 4.0}


def test_a_failed_request_keeps_the_stages_that_it_had_done():
    events = history(
        (0, State.understanding), (5, State.awaiting_approval), (9, State.acting), (10, State.failed)
    )
    lines = stage_lines(request(state=State.failed), events, START + timedelta(seconds=99))
    assert [(line.stage, line.done, line.running) for line in lines] == [
        (Stage.understand, True, False),
        (Stage.act, False, False),
        (Stage.verify, False, False),
    ]


def test_gates_are_shown_in_their_order_and_of_the_newest_round_only():
    jobs = [
        job("compile", round=1, state="running"),
        job("style", round=1),
        job("style", conclusion="failure"),
    ]
    assert [(line.name, line.conclusion) for line in gate_lines(request(round=1), jobs)] == [
        ("style (repair 1 of 3)", "success"),
        ("compile (repair 1 of 3)", None),
    ]


def test_a_command_is_shown_as_it_was_typed():
    assert command_of(request()) == "/liger dev relu2"
    assert command_of(request(op_text="", block="def f(x): ...")) == "/liger dev <python block>"


def test_a_command_whose_words_are_all_in_its_block_is_told_by_its_verb():
    assert command_of(request(op_text="", block="x")) == "/liger dev <python block>"
    assert command_of(request(verb="autopatch", op_text="", block="{}")) == "/liger autopatch <config.json>"
