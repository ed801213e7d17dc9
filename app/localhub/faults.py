"""What a test may make go wrong: deliveries lost, doubled, late or out of order; requests refused or failed."""

import random
import threading
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, Field


class DeliveryFault(BaseModel):
    """Applied to webhooks as they are taken up for sending."""

    kind: Literal["drop", "duplicate", "delay", "reorder"]
    events: list[str] = Field(default_factory=list, description="events it applies to; empty: all")
    times: int | None = Field(
        default=None, description="how many deliveries it applies to; None: until cleared"
    )
    seconds: float = Field(
        default=1.0, ge=0, description="delay: how late; reorder: within how long deliveries are shuffled"
    )


class RequestFault(BaseModel):
    """Applied to REST and GraphQL requests."""

    kind: Literal["secondary_limit", "primary_limit", "server_error", "latency"]
    method: str | None = Field(default=None, description="HTTP method it applies to; None: all")
    path: str = Field(default="", description="part of the path it applies to; empty: all")
    times: int | None = Field(
        default=None, description="how many requests it applies to; None: until cleared"
    )
    retry_after: int | None = Field(
        default=None, description="secondary_limit: seconds in the Retry-After header; None: no header"
    )
    status: int = Field(default=502, description="server_error: the status")
    after_effect: bool = Field(
        default=False, description="server_error: answer so only after the request took effect"
    )
    seconds: float = Field(
        default=1.0, ge=0, description="latency: how long a request waits; primary_limit: until the reset"
    )


@dataclass(frozen=True)
class Sending:
    """What becomes of one delivery: `copies` are sent (0: it is lost), the first after `delay` seconds."""

    copies: int = 1
    delay: float = 0.0


class Faults:
    """The switches that are on. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deliveries: list[DeliveryFault] = []
        self._requests: list[RequestFault] = []
        self._random = random.Random(0)  # noqa: S311 - a repeatable shuffle, nothing secret

    def add(self, fault: DeliveryFault | RequestFault) -> None:
        """Switch `fault` on, after those already on."""
        with self._lock:
            (self._deliveries if isinstance(fault, DeliveryFault) else self._requests).append(fault)  # type: ignore[arg-type]

    def clear(self) -> None:
        """Switch everything off."""
        with self._lock:
            self._deliveries.clear()
            self._requests.clear()

    def for_delivery(self, event: str) -> Sending:
        """What to do with a delivery of `event`; counts it against the fault that applies."""
        with self._lock:
            for fault in self._deliveries:
                if (fault.events and event not in fault.events) or not _take(fault):
                    continue
                if fault.kind == "drop":
                    return Sending(copies=0)
                if fault.kind == "duplicate":
                    return Sending(copies=2)
                late = fault.seconds if fault.kind == "delay" else self._random.uniform(0, fault.seconds)
                return Sending(delay=late)
        return Sending()

    def for_request(self, method: str, path: str) -> RequestFault | None:
        """The fault that a request meets, counted, or None."""
        with self._lock:
            for fault in self._requests:
                if (
                    (fault.method is None or fault.method.upper() == method)
                    and fault.path in path
                    and _take(fault)
                ):
                    return fault
        return None


def _take(fault: DeliveryFault | RequestFault) -> bool:
    if fault.times is None:
        return True
    if fault.times == 0:
        return False
    fault.times -= 1
    return True
