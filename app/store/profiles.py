"""Profiles, how they were shown, and who approved them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import defer

from agents.command_agent import AnyProfile
from app.states import State
from app.store.sessions import Sessions, add_event, now
from app.tables import Approval, Profile, Request


class Profiles(Sessions):
    """Profiles and approvals."""

    def save_profile(self, identifier: str, attempt: int, profile: AnyProfile) -> Profile:
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
        """Profiles that wait for an answer, with their requests. What the profiles say is left out: there may be thousands."""
        with self._session() as session:
            query = (
                select(Request, Profile)
                .options(defer(Profile.body, raiseload=True), defer(Profile.schedules, raiseload=True))
                .join(Profile, (Profile.request_id == Request.id) & (Profile.attempt == Request.attempt))
                .where(Request.state == State.awaiting_approval, Profile.shown_at.is_not(None))
            )
            return [(request, profile) for request, profile in session.execute(query)]

    def approved_and_waiting(self) -> list[Request]:
        """Requests whose newest profile is approved, though they still wait for an answer: a crash came in between."""
        with self._session() as session:
            approved = (Approval.request_id == Profile.request_id) & (
                Approval.profile_sha256 == Profile.sha256
            )
            query = (
                select(Request)
                .join(Profile, (Profile.request_id == Request.id) & (Profile.attempt == Request.attempt))
                .join(Approval, approved)
                .where(Request.state == State.awaiting_approval)
            )
            return list(session.scalars(query))

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
            profile.stale_reactions, profile.earlier_body_sha256 = stale_reactions, None

    def schedules_compiled(self, identifier: str, attempt: int, schedules: dict[str, Any]) -> None:
        """Keep what the compiler says about a profile's schedules."""
        with self._session() as session:
            session.get_one(Profile, (identifier, attempt)).schedules = schedules

    def profile_extended(self, identifier: str, attempt: int, body_sha256: str) -> None:
        """Remember that the comment is about to say more of the same profile: answers to it as it stands go on counting."""
        with self._session() as session:
            profile = session.get_one(Profile, (identifier, attempt))
            profile.earlier_body_sha256, profile.body_sha256 = profile.body_sha256, body_sha256

    def approve(self, approval: Approval) -> bool:
        """Record an approval. False when that profile had one."""
        try:
            with self._session() as session:
                session.add(approval)
                session.flush()
                how = "reacted 👍" if approval.by == "reaction" else "commented"
                add_event(
                    session,
                    approval.request_id,
                    "approval",
                    f"@{approval.login} {how}, profile {approval.profile_sha256[:12]}",
                )
        except IntegrityError:
            return False
        return True

    def approval(self, identifier: str, profile_sha256: str) -> Approval | None:
        with self._session() as session:
            return session.get(Approval, (identifier, profile_sha256))
