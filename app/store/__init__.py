"""Reads and writes our tables. Every method is one transaction and may be called again with the same arguments."""

from __future__ import annotations

from app.database import migrate, open_database
from app.store.counts import Counts
from app.store.deliveries import (
    MAX_DELIVERY_TRIES,
    MAX_PATIENT_TRIES,
    Deliveries,
    FinishedDelivery,
    NewDelivery,
)
from app.store.dispatches import Dispatches
from app.store.executors import Executors
from app.store.history import History
from app.store.listing import Filters, Listed, Listing
from app.store.profiles import Profiles
from app.store.requests import LiveRequestError, NewRequest, Requests, request_id
from app.store.retention import Retention
from app.store.sessions import now
from app.store.spending import Spending
from app.store.verification import Verification
from app.store.watching import Watching
from app.store.writes import Writes


class Store(
    Deliveries,
    Requests,
    Profiles,
    Verification,
    Dispatches,
    History,
    Executors,
    Spending,
    Listing,
    Watching,
    Counts,
    Writes,
    Retention,
):
    """Our tables. Raises sqlalchemy.exc.OperationalError when the database can't be reached."""

    @classmethod
    def open(cls, url: str) -> Store:
        """Open the database at that SQLAlchemy URL, migrated."""
        engine = open_database(url)
        migrate(engine)
        return cls(engine)


__all__ = [
    "MAX_DELIVERY_TRIES",
    "MAX_PATIENT_TRIES",
    "Filters",
    "FinishedDelivery",
    "Listed",
    "LiveRequestError",
    "NewDelivery",
    "NewRequest",
    "Store",
    "now",
    "request_id",
]
