"""The sender of webhooks: takes waiting deliveries from the table, signs, posts, records what came back.

As on GitHub a delivery is tried once, with 10 seconds to be answered; a failed one is only sent again on request.
A delivery that was waiting when the hub was killed is sent when it starts again, with the same GUID.
"""

import hashlib
import hmac
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
from sqlalchemy import func, select

from app.localhub.clock import stamp
from app.localhub.database import Database
from app.localhub.faults import Faults, Sending
from app.localhub.tables import HookDelivery

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 10.0
KEPT_RESPONSE_CHARACTERS = 65_535
WORKERS = 8
# GitHub's own wording in the `status` of a delivery.
NO_ANSWER = "failed to connect to host"
TOO_LATE = "timed out"


def signed_headers(delivery: HookDelivery, body: bytes) -> dict[str, str]:
    """The headers of a delivery, signatures over the raw body included."""
    secret = delivery.app.webhook_secret.encode()
    headers = {
        "Accept": "*/*",
        "Content-Type": "application/json",
        "User-Agent": "GitHub-Hookshot/local",
        "X-GitHub-Delivery": delivery.guid,
        "X-GitHub-Event": delivery.event,
        "X-GitHub-Hook-ID": str(delivery.app_id),
        "X-GitHub-Hook-Installation-Target-ID": str(delivery.app_id),
        "X-GitHub-Hook-Installation-Target-Type": "integration",
    }
    if secret:
        headers["X-Hub-Signature"] = "sha1=" + hmac.new(secret, body, hashlib.sha1).hexdigest()
        headers["X-Hub-Signature-256"] = "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()
    return headers


class DeliveryWorker:
    """Threads that send deliveries in the order of their events, several at a time."""

    def __init__(self, database: Database, faults: Faults) -> None:
        self._database = database
        self._faults = faults
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._taken: set[int] = set()
        self._client = httpx.Client(timeout=TIMEOUT_SECONDS, follow_redirects=False, trust_env=False)
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="deliveries")
        self._thread = threading.Thread(target=self._loop, name="deliveries", daemon=True)

    def start(self) -> None:
        """Begin with whatever waits in the table."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what is being sent; the rest waits in the table."""
        self._stopped.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        self._pool.shutdown(wait=True)
        self._client.close()

    def wake(self) -> None:
        """Look at the table now."""
        self._wake.set()

    def idle(self) -> bool:
        """Whether nothing waits and nothing is being sent."""
        with self._database.reading() as session:
            waiting = session.scalar(
                select(func.count()).select_from(HookDelivery).where(HookDelivery.outcome.is_(None))
            )
        return not waiting and not self._taken

    def _loop(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            try:
                pause = self._take_up()
            except Exception:
                log.exception("deliveries can't be read")
                pause = 1.0
            self._wake.wait(pause)

    def _take_up(self) -> float:
        """Hand every due delivery to a thread; returns the seconds until the next is due."""
        now = time.time()
        with self._database.reading() as session:
            due = session.scalars(
                select(HookDelivery.id)
                .where(HookDelivery.outcome.is_(None), HookDelivery.not_before <= now)
                .order_by(HookDelivery.id)
            ).all()
            later = session.scalar(
                select(func.min(HookDelivery.not_before)).where(
                    HookDelivery.outcome.is_(None), HookDelivery.not_before > now
                )
            )
        for number in due:
            if number not in self._taken:
                self._taken.add(number)
                self._pool.submit(self._handle, number)
        return 5.0 if later is None else max(0.01, min(5.0, later - now))

    def _handle(self, number: int) -> None:
        try:
            with self._database.reading() as session:
                delivery = session.get(HookDelivery, number)
                if delivery is None or delivery.outcome is not None:
                    return
                held_back = delivery.not_before > 0
                sending = (
                    Sending()
                    if held_back or delivery.redelivery
                    else self._faults.for_delivery(delivery.event)
                )
                if sending.delay and not held_back:
                    self._postpone(number, time.time() + sending.delay)
                    return
                if sending.copies == 0:
                    self._record(number, outcome="dropped", status="dropped")
                    return
                self._send(delivery, sending.copies)
        except Exception:
            log.exception("delivery %s can't be sent", number)
        finally:
            self._taken.discard(number)
            self._wake.set()

    def _postpone(self, number: int, moment: float) -> None:
        with self._database.writing() as session, session.begin():
            row = session.get_one(HookDelivery, number)
            row.not_before = moment

    def _send(self, delivery: HookDelivery, copies: int) -> None:
        body = delivery.payload.encode()
        headers = signed_headers(delivery, body)
        for _ in range(copies):
            started = time.monotonic()
            status, code, answer = NO_ANSWER, 0, None
            try:
                answer = self._client.post(delivery.app.webhook_url, content=body, headers=headers)
                status, code = answer.reason_phrase or "OK", answer.status_code
            except httpx.TimeoutException:
                status = TOO_LATE
            except httpx.HTTPError as error:
                log.info("delivery %s of %s failed: %s", delivery.guid, delivery.event, error)
            good = 200 <= code < 300
            self._record(
                delivery.id,
                outcome="delivered" if good else "failed",
                status="OK" if good else status,
                status_code=code,
                duration=round(time.monotonic() - started, 3),
                request_headers=headers,
                response_headers=dict(answer.headers) if answer is not None else {},
                response_body=answer.text[:KEPT_RESPONSE_CHARACTERS] if answer is not None else "",
            )

    def _record(self, number: int, **values: object) -> None:
        with self._database.writing() as session, session.begin():
            row = session.get_one(HookDelivery, number)
            row.delivered_at = stamp()
            for name, value in values.items():
                setattr(row, name, value)
