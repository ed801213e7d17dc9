"""The table of moves."""

from __future__ import annotations

from itertools import pairwise

import pytest

from app.states import ENDED, LIVE, MOVES, RUNNING, IllegalMoveError, State, check_move


def test_every_state_has_its_moves():
    assert set(MOVES) == set(State)


def test_the_happy_path_is_allowed():
    path = [
        State.received,
        State.understanding,
        State.awaiting_approval,
        State.acting,
        State.verifying,
        State.in_review,
        State.merged,
    ]
    assert all(check_move(before, after) for before, after in pairwise(path))


def test_staying_is_not_a_move():
    assert check_move(State.acting, State.acting) is False


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (State.received, State.acting),  # nothing acts without an approval
        (State.understanding, State.acting),
        (State.revising, State.acting),  # an approval before a revision doesn't carry over
        (State.merged, State.cancelled),
        (State.rejected, State.acting),
        (State.expired, State.acting),
        (State.cancelled, State.verifying),  # a step that was on its way can't undo a cancel
    ],
)
def test_what_must_not_happen_is_refused(before: State, after: State):
    with pytest.raises(IllegalMoveError):
        check_move(before, after)


def test_every_live_state_can_be_given_up_but_review_which_is_closed_on_the_pull_request():
    assert {state for state in LIVE if State.cancelled not in MOVES[state]} == {State.in_review}


def test_a_retry_goes_to_a_stage_and_from_where_nothing_runs():
    assert check_move(State.failed, State.acting, retry=True)
    assert check_move(State.in_review, State.verifying, retry=True)
    with pytest.raises(IllegalMoveError):
        check_move(State.verifying, State.verifying, retry=True)
    with pytest.raises(IllegalMoveError):
        check_move(State.rejected, State.acting, retry=True)


def test_every_state_that_runs_a_stage_is_live():
    assert set(RUNNING) <= LIVE
    assert not LIVE & ENDED
