"""Webhook deliveries that we took responsibility for."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import delete, or_, select
from sqlalchemy.exc import IntegrityError

from app.store.sessions import Sessions, now
from app.tables import Delivery

MAX_DELIVERY_TRIES = 6


class Deliveries(Sessions):
    """Kept before they are acknowledged, processed after."""

    def record_delivery(self, guid: str, event: str, body: str) -> bool:
        """Keep a delivery before it is acknowledged. False when it's known already."""
        try:
            with self._session() as session:
                session.add(
                    Delivery(guid=guid, event=event, body=body, received_at=now(), tries=0, next_try_at=None)
                )
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
            query = (
                select(Delivery.guid).where(Delivery.state == "received", due).order_by(Delivery.received_at)
            )
            return list(session.scalars(query))

    def forget_deliveries(self, older_than_days: float) -> None:
        """Delete deliveries that were done with long ago."""
        with self._session() as session:
            before = now() - timedelta(days=older_than_days)
            session.execute(
                delete(Delivery).where(Delivery.state != "received", Delivery.received_at < before)
            )
