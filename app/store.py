"""Reads and writes our tables. Every method is one transaction and may be called again with the same arguments."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Engine, delete, func, or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, sessionmaker

from agents.candidate import Candidate
from agents.profiles import KernelProfile
from app.database import migrate, open_database
from app.states import ENDED, LIVE, Stage, State, check_move
from app.tables import Approval, Delivery, Event, Executor, Profile, Reply, Request, StoredCandidate, StoredJob

MAX_DELIVERY_TRIES = 6


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


def now() -> datetime:
    return datetime.now(UTC)


def request_id(repository: str, comment_id: int) -> str:
    """The request that a comment makes: always the same, so a comment read twice is one request."""
    digest = hashlib.sha256(f"{repository}#{comment_id}".encode()).digest()
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"  # no letters that are taken for digits
    return "".join(alphabet[byte % len(alphabet)] for byte in digest[:7])


class Store:
    """Our tables. Raises sqlalchemy.exc.OperationalError when the database can't be reached."""

    def __init__(self, engine: Engine):
        self._engine = engine
        self._sessions = sessionmaker(engine, expire_on_commit=False)

    @classmethod
    def open(cls, url: str) -> Store:
        """Open the database at that SQLAlchemy URL, migrated."""
        engine = open_database(url)
        migrate(engine)
        return cls(engine)

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _session(self) -> Iterator[Session]:
        with self._sessions.begin() as session:
            yield session

    # deliveries

    def record_delivery(self, guid: str, event: str, body: str) -> bool:
        """Keep a delivery before it is acknowledged. False when it's known already."""
        try:
            with self._session() as session:
                session.add(Delivery(guid=guid, event=event, body=body, received_at=now(), tries=0, next_try_at=None))
        except IntegrityError:
            return False
        return True

    def delivery(self, guid: str) -> Delivery | None:
        with self._session() as session:
            return session.get(Delivery, guid)

    def finish_delivery(self, guid: str, state: str, note: str = "") -> None:
        with self._session() as session:
            delivery = session.get_one(Delivery, guid)
            delivery.state, delivery.note = state, note

    def postpone_delivery(self, guid: str, note: str) -> bool:
        """Plan another try of a delivery that failed by no fault of its own. False when it had its tries."""
        with self._session() as session:
            delivery = session.get_one(Delivery, guid)
            delivery.tries += 1
            delivery.note = note
            if delivery.tries >= MAX_DELIVERY_TRIES:
                delivery.state = "failed"
                return False
            delivery.next_try_at = now() + timedelta(seconds=2.0**delivery.tries)
            return True

    def waiting_deliveries(self) -> list[str]:
        """Deliveries to be processed now: never tried, or due again."""
        with self._session() as session:
            due = or_(Delivery.next_try_at.is_(None), Delivery.next_try_at <= now())
            query = select(Delivery.guid).where(Delivery.state == "received", due).order_by(Delivery.received_at)
            return list(session.scalars(query))

    def forget_deliveries(self, older_than_days: float) -> None:
        """Delete deliveries that were done with long ago."""
        with self._session() as session:
            before = now() - timedelta(days=older_than_days)
            session.execute(delete(Delivery).where(Delivery.state != "received", Delivery.received_at < before))

    # requests

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
                _note(session, identifier, "state", f"from {new.requester}", State.received)
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

    def _move(self, identifier: str, state: State, why: str, changes: dict[str, Any], *, retry: bool) -> Request:
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
                _note(session, identifier, "state", why, state)
            return request

    @staticmethod
    def _take_up_again(session: Session, request: Request) -> None:
        live_key = f"{request.repository}:{request.verb}:{request.op_key}"
        other = session.scalars(select(Request).where(Request.live_key == live_key, Request.id != request.id)).first()
        if other is not None:
            session.expunge(other)  # the transaction is rolled back, and what it had read would be forgotten with it
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
        return self.move(identifier, State.failed, failure["reason"], failed_stage=str(stage), failure=failure)

    # profiles and approvals

    def save_profile(self, identifier: str, attempt: int, profile: KernelProfile) -> Profile:
        with self._session() as session:
            stored = Profile(
                request_id=identifier,
                attempt=attempt,
                sha256=profile.sha256(),
                body=profile.model_dump(mode="json"),
                created_at=now(),
            )
            return session.merge(stored)

    def profile(self, identifier: str, attempt: int | None = None) -> Profile | None:
        """The profile of that attempt, or the newest."""
        with self._session() as session:
            query = select(Profile).where(Profile.request_id == identifier)
            if attempt is not None:
                query = query.where(Profile.attempt == attempt)
            return session.scalars(query.order_by(Profile.attempt.desc())).first()

    def pending_profiles(self) -> list[tuple[Request, Profile]]:
        """Profiles that wait for an answer, with their requests."""
        with self._session() as session:
            query = (
                select(Request, Profile)
                .join(Profile, (Profile.request_id == Request.id) & (Profile.attempt == Request.attempt))
                .where(Request.state == State.awaiting_approval, Profile.shown_at.is_not(None))
            )
            return [(request, profile) for request, profile in session.execute(query)]

    def profile_shown(
        self,
        identifier: str,
        attempt: int,
        *,
        comment_id: int,
        comment_node_id: str,
        body_sha256: str,
        shown_at: datetime,
        stale_reactions: list[int],
    ) -> None:
        """Remember how a profile was put before people; approvals are judged by it."""
        with self._session() as session:
            profile = session.get_one(Profile, (identifier, attempt))
            profile.comment_id, profile.comment_node_id = comment_id, comment_node_id
            profile.body_sha256, profile.shown_at = body_sha256, shown_at
            profile.stale_reactions = stale_reactions

    def approve(self, approval: Approval) -> bool:
        """Record an approval. False when that profile had one."""
        try:
            with self._session() as session:
                session.add(approval)
                session.flush()
                how = "reacted 👍" if approval.by == "reaction" else "commented"
                _note(session, approval.request_id, "approval", f"@{approval.login} {how}, profile {approval.profile_sha256[:12]}")
        except IntegrityError:
            return False
        return True

    def approval(self, identifier: str, profile_sha256: str) -> Approval | None:
        with self._session() as session:
            return session.get(Approval, (identifier, profile_sha256))

    # candidates, jobs, reports

    def save_candidate(self, identifier: str, attempt: int, round_: int, candidate: Candidate) -> None:
        with self._session() as session:
            body = candidate.model_dump(mode="json")
            session.merge(
                StoredCandidate(request_id=identifier, attempt=attempt, round=round_, body=body, head_sha="", created_at=now())
            )

    def candidate_pushed(self, identifier: str, attempt: int, round_: int, head_sha: str) -> None:
        with self._session() as session:
            session.get_one(StoredCandidate, (identifier, attempt, round_)).head_sha = head_sha

    def candidate(self, identifier: str, *, pushed: bool = False) -> StoredCandidate | None:
        """The newest candidate, or the newest that was pushed."""
        with self._session() as session:
            query = select(StoredCandidate).where(StoredCandidate.request_id == identifier)
            if pushed:
                query = query.where(StoredCandidate.head_sha != "")
            return session.scalars(query.order_by(StoredCandidate.attempt.desc(), StoredCandidate.round.desc())).first()

    def start_job(self, job: StoredJob) -> StoredJob:
        """The job with that id: the one given, or the one started before (its nonce and check run stand)."""
        with self._session() as session:
            known = session.get(StoredJob, job.id)
            if known is not None:
                return known
            session.add(job)
            return job

    def update_job(self, job_id: str, **changes: Any) -> StoredJob:
        with self._session() as session:
            job = session.get_one(StoredJob, job_id)
            for name, value in changes.items():
                setattr(job, name, value)
            return job

    def job(self, job_id: str) -> StoredJob | None:
        with self._session() as session:
            return session.get(StoredJob, job_id)

    def jobs(self, identifier: str, attempt: int | None = None, round_: int | None = None) -> list[StoredJob]:
        with self._session() as session:
            query = select(StoredJob).where(StoredJob.request_id == identifier)
            if attempt is not None:
                query = query.where(StoredJob.attempt == attempt)
            if round_ is not None:
                query = query.where(StoredJob.round == round_)
            return list(session.scalars(query.order_by(StoredJob.created_at)))

    # history and replies

    def note(self, identifier: str, kind: str, text: str) -> None:
        with self._session() as session:
            _note(session, identifier, kind, text)

    def events(self, identifier: str) -> list[Event]:
        with self._session() as session:
            return list(session.scalars(select(Event).where(Event.request_id == identifier).order_by(Event.id)))

    def replies_today(self, repository: str, number: int, login: str, comment_id: int) -> int:
        """Replies that a person got on an issue in the last 24 hours, other than the one to that comment."""
        with self._session() as session:
            query = select(func.count()).where(
                Reply.repository == repository,
                Reply.issue_number == number,
                Reply.login == login,
                Reply.comment_id != comment_id,
                Reply.at > now() - timedelta(days=1),
            )
            return session.scalar(query) or 0

    def record_reply(self, repository: str, number: int, login: str, comment_id: int) -> None:
        with self._session() as session:
            session.merge(Reply(repository=repository, comment_id=comment_id, issue_number=number, login=login, at=now()))

    # executors

    def heartbeat(self, executor_id: str, process: str) -> None:
        with self._session() as session:
            session.merge(Executor(id=executor_id, process=process, heartbeat_at=now()))

    def executor(self, executor_id: str) -> Executor | None:
        with self._session() as session:
            return session.get(Executor, executor_id)

    def silent_executors(self, silent_s: float) -> list[str]:
        with self._session() as session:
            return list(session.scalars(select(Executor.id).where(Executor.heartbeat_at < now() - timedelta(seconds=silent_s))))

    def forget_executor(self, executor_id: str) -> None:
        with self._session() as session:
            executor = session.get(Executor, executor_id)
            if executor is not None:
                session.delete(executor)

    def live_requests(self) -> list[Request]:
        return self.requests_in(LIVE)


def _note(session: Session, identifier: str, kind: str, text: str, state: State | None = None) -> None:
    session.add(Event(request_id=identifier, at=now(), kind=kind, text=text, state=state))
