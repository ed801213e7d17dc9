"""Time as GitHub writes it: UTC, whole seconds, `2026-03-10T09:30:00Z`."""

from datetime import UTC, datetime, timedelta

STAMP = "%Y-%m-%dT%H:%M:%SZ"


def stamp(moment: datetime | None = None) -> str:
    """The given moment (default: now) as a GitHub timestamp."""
    return (moment or datetime.now(UTC)).astimezone(UTC).strftime(STAMP)


def stamp_in(seconds: float) -> str:
    """The timestamp `seconds` from now."""
    return stamp(datetime.now(UTC) + timedelta(seconds=seconds))


def parse_stamp(text: str) -> datetime:
    """The moment of an ISO 8601 timestamp; a missing zone means UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def git_stamp(moment: datetime) -> str:
    """A commit's moment as the git data API gives it: in UTC, with `Z`."""
    return stamp(moment)
