"""Requests: one a comment, one live for an op."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.states import ENDED, Stage, State, check_move
from app.store.sessions import Sessions, add_event, now
from app.tables import Request


@dataclass(frozen=True)
class NewRequest:
    """What is known of a request when its command is accepted."""

    repository: str
    installation_id: int
    issue_number: int
    comment_id: int
    requester: str
    requester_id: int
    verb: str
    op_text: str
    op_key: str
    block: str | None = None


class LiveRequestError(Exception):
    """A request for the same op is live in that repository. `request` is that one."""

    def __init__(self, request: Request):
        super().__init__(f"request {request.id} for the same op is live")
        self.request = request


def request_id(repository: str, comment_id: int) -> str:
    """The request that a comment makes: always the same, so a comment read twice is one request."""
    digest = hashlib.sha256(f"{repository}#{comment_id}".encode()).digest()
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"  # no letters that are taken for digits
    return "".join(alphabet[byte % len(alphabet)] for byte in digest[:7])


class Requests(Sessions):
    """Requests and their states."""

    def create_request(self, new: NewRequest) -> Request:
        """The request that a comment makes; made now or before. Raises LiveRequestError for a second one of the same op."""
        identifier = request_id(new.repository, new.comment_id)
        live_key = f"{new.repository}:{new.verb}:{new.op_key}"
        try:
            with self._session() as session:
                known = session.get(Request, identifier)
                if known is not None:
                    return known
                request = Request(
                    id=identifier,
                    repository=new.repository,
                    installation_id=new.installation_id,
                    issue_number=new.issue_number,
                    comment_id=new.comment_id,
                    requester=new.requester,
                    requester_id=new.requester_id,
                    verb=new.verb,
                    op_text=new.op_text,
                    block=new.block,
                    op_key=new.op_key,
                    live_key=live_key,
                    state=State.received,
                    attempt=1,
                    round=0,
                    created_at=now(),
                    updated_at=now(),
                )
                session.add(request)
                session.flush()
                add_event(session, identifier, "state", f"from {new.requester}", State.received)
                return request
        except IntegrityError:
            with self._session() as session:
                known = session.get(Request, identifier)
                if known is not None:
                    return known
                live = session.scalars(select(Request).where(Request.live_key == live_key)).one()
            raise LiveRequestError(live) from None

    def request(self, identifier: str) -> Request:
        """Raises sqlalchemy.exc.NoResultFound when there is none."""
        with self._session() as session:
            return session.get_one(Request, identifier)

    def find_request(self, identifier: str) -> Request | None:
        with self._session() as session:
            return session.get(Request, identifier)

    def recent_requests(self, limit: int = 100) -> list[Request]:
        with self._session() as session:
            return list(session.scalars(select(Request).order_by(Request.created_at.desc()).limit(limit)))

    def requests_in(self, states: Iterable[State]) -> list[Request]:
        with self._session() as session:
            query = select(Request).where(Request.state.in_([str(state) for state in states]))
            return list(session.scalars(query.order_by(Request.created_at)))

    def requests_of_issue(self, repository: str, number: int) -> list[Request]:
        """Requests made on that issue, or whose pull request it is; newest first."""
        with self._session() as session:
            where = or_(Request.issue_number == number, Request.pull_number == number)
            query = select(Request).where(Request.repository == repository, where)
            return list(session.scalars(query.order_by(Request.created_at.desc())))

    def request_of_pull(self, repository: str, number: int) -> Request | None:
        with self._session() as session:
            query = select(Request).where(Request.repository == repository, Request.pull_number == number)
            return session.scalars(query.order_by(Request.created_at.desc())).first()

    def request_of_head(self, repository: str, head_sha: str) -> Request | None:
        with self._session() as session:
            query = select(Request).where(Request.repository == repository, Request.head_sha == head_sha)
            return session.scalars(query.order_by(Request.created_at.desc())).first()

    def move(self, identifier: str, state: State, why: str = "", **changes: Any) -> Request:
        """Take a request to another state, with other fields of it. Raises IllegalMoveError."""
        return self._move(identifier, state, why, changes, retry=False)

    def retry(self, identifier: str, state: State, **changes: Any) -> Request:
        """Take up a request that had stopped. Raises IllegalMoveError, or LiveRequestError when another one took its place."""
        return self._move(identifier, state, "retry", changes, retry=True)

    def _move(
        self, identifier: str, state: State, why: str, changes: dict[str, Any], *, retry: bool
    ) -> Request:
        with self._session() as session:
            request = session.get_one(Request, identifier, with_for_update=True)
            moved = check_move(State(request.state), state, retry=retry)
            if state in ENDED:
                request.live_key = None
            elif moved and State(request.state) in ENDED:
                self._take_up_again(session, request)
            request.state = state
            for name, value in changes.items():
                setattr(request, name, value)
            request.updated_at = now()
            if moved:
                add_event(session, identifier, "state", why, state)
            return request

    @staticmethod
    def _take_up_again(session: Session, request: Request) -> None:
        live_key = f"{request.repository}:{request.verb}:{request.op_key}"
        other = session.scalars(
            select(Request).where(Request.live_key == live_key, Request.id != request.id)
        ).first()
        if other is not None:
            session.expunge(
                other
            )  # the transaction is rolled back, and what it had read would be forgotten with it
            raise LiveRequestError(other)
        request.live_key = live_key

    def update_request(self, identifier: str, **changes: Any) -> Request:
        with self._session() as session:
            request = session.get_one(Request, identifier)
            for name, value in changes.items():
                setattr(request, name, value)
            request.updated_at = now()
            return request

    def fail(self, identifier: str, stage: Stage, failure: dict[str, Any]) -> Request:
        """End a request that can't go on; `failure` says why and whether it was a refusal or our fault."""
        return self.move(
            identifier, State.failed, failure["reason"], failed_stage=str(stage), failure=failure
        )
