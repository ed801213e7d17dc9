"""The states of a request and the moves between them. Pure; docs/states.md draws the same table."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a request stands."""

    received = "received"
    understanding = "understanding"
    awaiting_approval = "awaiting_approval"
    revising = "revising"
    acting = "acting"
    verifying = "verifying"
    repairing = "repairing"
    in_review = "in_review"
    merged = "merged"
    closed = "closed"
    rejected = "rejected"
    cancelled = "cancelled"
    expired = "expired"
    failed = "failed"


class Stage(StrEnum):
    """The three stages; each runs as one short durable workflow."""

    understand = "understand"
    act = "act"
    verify = "verify"


_STOPPED = frozenset({State.cancelled, State.failed})
# A pull request can be merged or closed at any time once there is one, also while its profile is revised.
_PULL_ENDED = frozenset({State.merged, State.closed})

MOVES: dict[State, frozenset[State]] = {
    State.received: frozenset({State.understanding}) | _STOPPED,
    State.understanding: frozenset({State.awaiting_approval, State.rejected}) | _STOPPED,
    State.awaiting_approval: frozenset({State.revising, State.acting, State.rejected, State.expired})
    | _PULL_ENDED
    | _STOPPED,
    State.revising: frozenset({State.awaiting_approval}) | _PULL_ENDED | _STOPPED,
    State.acting: frozenset({State.verifying}) | _PULL_ENDED | _STOPPED,
    State.verifying: frozenset({State.repairing, State.in_review}) | _PULL_ENDED | _STOPPED,
    State.repairing: frozenset({State.verifying}) | _PULL_ENDED | _STOPPED,
    State.in_review: _PULL_ENDED,
    State.closed: frozenset({State.in_review, State.merged}),
    State.merged: frozenset(),
    State.failed: frozenset(),
    State.rejected: frozenset(),
    State.cancelled: frozenset(),
    State.expired: frozenset(),
}

# What `/liger retry`, a person's push or `/liger revise` on the pull request takes up again, as another attempt. Not among the moves: a step that is still on its way when a
# request is cancelled must not bring it back to life.
RETRIES: dict[State, frozenset[State]] = {
    State.failed: frozenset({State.understanding, State.revising, State.acting, State.verifying}),
    State.rejected: frozenset({State.understanding}),
    State.cancelled: frozenset({State.understanding}),
    State.expired: frozenset({State.understanding}),
    State.in_review: frozenset({State.verifying, State.revising}),
}

ENDED = frozenset({State.merged, State.closed, State.rejected, State.expired}) | _STOPPED
LIVE = frozenset(State) - ENDED

# The stage whose workflow must be running while a request is in that state.
RUNNING: dict[State, Stage] = {
    State.received: Stage.understand,
    State.understanding: Stage.understand,
    State.revising: Stage.understand,
    State.acting: Stage.act,
    State.verifying: Stage.verify,
    State.repairing: Stage.verify,
}


class IllegalMoveError(Exception):
    """A move that the table doesn't have: our fault, or two processes raced and the other one won."""

    def __init__(self, before: State, after: State):
        super().__init__(f"a request can't go from {before} to {after}")
        self.before, self.after = before, after


def check_move(before: State, after: State, *, retry: bool = False) -> bool:
    """True when the move changes the state, False when it's already there. Raises IllegalMoveError."""
    if before is after and not retry:
        return False
    if after not in (RETRIES.get(before, frozenset()) if retry else MOVES[before]):
        raise IllegalMoveError(before, after)
    return True
