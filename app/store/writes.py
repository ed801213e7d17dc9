"""Writes to GitHub that are under way, so that no two processes make the same thing."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from sqlalchemy import delete
from sqlalchemy.exc import IntegrityError

from app.store.sessions import Sessions, now
from app.tables import Write

# Longer than any single call to GitHub may take.
LEASE_S = 120.0


class Writes(Sessions):
    """Claims on things that are to be made on GitHub."""

    def claim_write(self, key: str, executor_id: str) -> bool:
        """Whether this executor may make that thing now.

        Another's claim holds until it is dropped, or LEASE_S old; our own is one that we died with.
        """
        try:
            with self._session() as session:
                claim = session.get(Write, key, with_for_update=True)
                if claim is None:
                    session.add(Write(key=key, executor_id=executor_id, at=now()))
                    return True
                if claim.executor_id != executor_id and now() - claim.at < timedelta(seconds=LEASE_S):
                    return False
                claim.executor_id, claim.at = executor_id, now()
                return True
        except IntegrityError:  # another process was faster by a moment
            return False

    def drop_write(self, key: str, executor_id: str) -> None:
        """Say that the thing is made, or won't be."""
        with self._session() as session:
            session.execute(delete(Write).where(Write.key == key, Write.executor_id == executor_id))

    def drop_writes_of(self, executor_ids: Collection[str]) -> None:
        """Drop the claims of processes that are known to be dead: what they were making is somebody else's to make now."""
        with self._session() as session:
            session.execute(delete(Write).where(Write.executor_id.in_(executor_ids)))
