"""Candidates, the jobs that judge them, and the reports."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from agents.command_agent import AnyCandidate
from app.store.sessions import Sessions, now
from app.tables import StoredCandidate, StoredJob


class Verification(Sessions):
    """Candidates and jobs."""

    def save_candidate(self, identifier: str, attempt: int, round_: int, candidate: AnyCandidate) -> None:
        with self._session() as session:
            body = candidate.model_dump(mode="json")
            session.merge(
                StoredCandidate(
                    request_id=identifier,
                    attempt=attempt,
                    round=round_,
                    body=body,
                    head_sha="",
                    created_at=now(),
                )
            )

    def save_pushed(
        self, identifier: str, attempt: int, candidate: AnyCandidate, head_sha: str, pushed_by: str
    ) -> None:
        """Keep what a person pushed to our branch as the candidate of an attempt."""
        with self._session() as session:
            session.merge(
                StoredCandidate(
                    request_id=identifier,
                    attempt=attempt,
                    round=0,
                    body=candidate.model_dump(mode="json"),
                    head_sha=head_sha,
                    pushed_by=pushed_by,
                    created_at=now(),
                )
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
            return session.scalars(
                query.order_by(StoredCandidate.attempt.desc(), StoredCandidate.round.desc())
            ).first()

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
