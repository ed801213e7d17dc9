"""Webhook deliveries that we took responsibility for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, or_, select
from sqlalchemy.exc import IntegrityError

from app.store.sessions import Sessions, now
from app.tables import Delivery

MAX_DELIVERY_TRIES = 6
# For faults that aren't ours nor the delivery's, GitHub being away for instance: some four hours.
MAX_PATIENT_TRIES = 30
MAX_PAUSE_S = 600.0


@dataclass(frozen=True)
class NewDelivery:
    """A delivery as it came in. `guid` is the same when GitHub sends it again.

    subject: what it tells of, where that must be told once only, under whatever GUID; empty: nothing of that kind.
    """

    guid: str
    event: str
    body: str
    subject: str = ""


@dataclass(frozen=True)
class FinishedDelivery:
    """A delivery that was processed. state: done or failed."""

    guid: str
    state: str
    note: str


class Deliveries(Sessions):
    """Kept before they are acknowledged, processed after."""

    def write_deliveries(
        self, new: Sequence[NewDelivery], finished: Sequence[FinishedDelivery] = ()
    ) -> set[str]:
        """Keep new deliveries and note what came of others, in one transaction; returns which of the new were not known."""
        try:
            return self._write(new, finished)
        except IntegrityError:
            # another process keeps one of them at this very moment; the second look sees it
            return self._write(new, finished)

    def _write(self, new: Sequence[NewDelivery], finished: Sequence[FinishedDelivery]) -> set[str]:
        with self._session() as session:
            guids = {one.guid: one for one in new}
            known = set(session.scalars(select(Delivery.guid).where(Delivery.guid.in_(guids))))
            subjects = {one.subject for one in new if one.subject}
            told = set(session.scalars(select(Delivery.subject).where(Delivery.subject.in_(subjects))))
            fresh: set[str] = set()
            for guid, one in guids.items():
                if guid in known:
                    continue
                again = one.subject in told
                if not again:
                    fresh.add(guid)
                    told |= {one.subject} - {""}
                session.add(
                    Delivery(
                        guid=guid,
                        event=one.event,
                        body=one.body,
                        received_at=now(),
                        state="ignored" if again else "received",
                        note="told before" if again else "",
                        tries=0,
                        next_try_at=None,
                        subject=one.subject or None if not again else None,
                    )
                )
            for done in finished:
                delivery = session.get(Delivery, done.guid)
                if delivery is not None:
                    delivery.state, delivery.note = done.state, done.note
            return fresh

    def delivery(self, guid: str) -> Delivery | None:
        with self._session() as session:
            return session.get(Delivery, guid)

    def postpone_delivery(self, guid: str, note: str, tries: int = MAX_DELIVERY_TRIES) -> bool:
        """Plan another try of a delivery that failed by no fault of its own. False when it had its tries."""
        with self._session() as session:
            delivery = session.get_one(Delivery, guid)
            delivery.tries += 1
            delivery.note = note
            if delivery.tries >= tries:
                delivery.state = "failed"
                return False
            delivery.next_try_at = now() + timedelta(seconds=min(2.0**delivery.tries, MAX_PAUSE_S))
            return True

    def waiting_deliveries(self) -> list[str]:
        """Deliveries to be processed now: never tried, or due again."""
        with self._session() as session:
            due = or_(Delivery.next_try_at.is_(None), Delivery.next_try_at <= now())
            query = (
                select(Delivery.guid).where(Delivery.state == "received", due).order_by(Delivery.received_at)
            )
            return list(session.scalars(query))

    def untold(self, subjects: Sequence[str]) -> set[str]:
        """Those that no delivery has told of."""
        with self._session() as session:
            return {*subjects} - set(
                session.scalars(select(Delivery.subject).where(Delivery.subject.in_(subjects)))
            )

    def first_delivery_at(self) -> datetime | None:
        """When the oldest delivery that is kept came; None: there was none."""
        with self._session() as session:
            return session.scalars(
                select(Delivery.received_at).order_by(Delivery.received_at).limit(1)
            ).first()

    def forget_deliveries(self, older_than_days: float) -> None:
        """Delete deliveries that were done with long ago."""
        with self._session() as session:
            before = now() - timedelta(days=older_than_days)
            session.execute(
                delete(Delivery).where(Delivery.state != "received", Delivery.received_at < before)
            )
