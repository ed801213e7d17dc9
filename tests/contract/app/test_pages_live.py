"""A request's page while it changes: events, connecting again, the end, and nothing left behind."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx
import pytest

from app.states import State
from tests.pages_place import PRIVATE, PagesPlace, pages_place
from tests.service_process import wait_for


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PagesPlace]:
    with pages_place(tmp_path_factory.mktemp("live")) as running:
        running.service.live._look_every_s = 0.1
        yield running


@dataclass
class Event:
    """One server-sent event."""

    name: str = ""
    identifier: str = ""
    data: dict[str, str] = field(default_factory=dict)


def events(lines: Iterator[str]) -> Iterator[Event]:
    """Events as a browser reads them; comments are passed over."""
    event = Event()
    for line in lines:
        key, _, value = line.partition(": ")
        if key == "event":
            event.name = value
        elif key == "id":
            event.identifier = value
        elif key == "data":
            event.data = json.loads(value)
        elif not line and event.name:
            yield event
            event = Event()


def said(found: Iterator[Event], part: str, words: str) -> Event:
    """The next event whose part of the page has these words; the clock on the page makes events of its own."""
    seen = []
    for event in found:
        seen.append(event)
        if words in event.data.get(part, ""):
            return event
    raise AssertionError(f"{words!r} is in none of {seen}")


def test_changes_arrive_as_they_happen_until_the_end(place: PagesPlace):
    identifier = place.request("followed")
    url = f"{place.url}/requests/{identifier}/events"
    with httpx.stream("GET", url, timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-accel-buffering"] == "no"  # nginx would hold the events back
        assert answer.headers["cache-control"] == "no-store"
        found = events(answer.iter_lines())
        assert "received" in next(found).data["head"]
        place.store.move(identifier, State.understanding)
        said(found, "head", "understanding")
        place.store.log_line(identifier, "tracing <op> 3 of 7")
        said(found, "log", "tracing &lt;op&gt; 3 of 7")
        place.failed(identifier, "the disk is full")
        last = said(found, "stages", "the disk is full")
        assert next(found).name == "end"
        assert list(found) == []
    again = httpx.get(url, headers={"Last-Event-ID": last.identifier}, timeout=60)
    assert again.status_code == 204  # a browser that gets this asks no more
    late = list(events(iter(httpx.get(url, timeout=60).text.split("\n"))))
    assert [one.name for one in late] == ["update", "end"]


def test_who_connects_again_gets_what_was_missed_and_nothing_twice(place: PagesPlace):
    identifier = place.request("reconnected")
    url = f"{place.url}/requests/{identifier}/events"
    with httpx.stream("GET", url, timeout=60) as answer:
        seen = next(events(answer.iter_lines())).identifier
    place.store.move(identifier, State.understanding)
    with httpx.stream("GET", url, headers={"Last-Event-ID": seen}, timeout=60) as answer:
        missed = said(events(answer.iter_lines()), "head", "understanding")
    with httpx.stream("GET", url, headers={"Last-Event-ID": missed.identifier}, timeout=60) as answer:
        found = events(answer.iter_lines())
        threading.Timer(0.6, place.store.log_line, (identifier, "the next thing")).start()
        said(found, "log", "the next thing")


def test_the_page_that_was_loaded_is_not_sent_again(place: PagesPlace):
    identifier = place.request("loaded")
    page = httpx.get(f"{place.url}/requests/{identifier}").text
    seen = page.partition('data-seen="')[2].partition('"')[0]
    with httpx.stream("GET", f"{place.url}/requests/{identifier}/events?seen={seen}", timeout=60) as answer:
        found = events(answer.iter_lines())
        threading.Timer(0.6, place.store.log_line, (identifier, "news")).start()
        said(found, "log", "news")


def test_streams_leave_nothing_behind(place: PagesPlace):
    identifier = place.request("watched")
    live = place.service.live
    wait_for(lambda: live.streams == 0, 5, "earlier streams were cleared away")
    threads = threading.active_count()
    with httpx.Client(timeout=60) as client:
        for _ in range(30):
            with client.stream("GET", f"{place.url}/requests/{identifier}/events") as answer:
                found = events(answer.iter_lines())
                next(found)
                assert live.streams >= 1
    wait_for(lambda: live.streams == 0, 5, "the streams are gone")
    wait_for(lambda: live._task is None or live._task.done(), 5, "nobody looks at the database any more")
    assert live._watched == live._stamps == {}
    assert (
        threading.active_count() <= threads + 8
    )  # the pool that asks the database, whatever the number of streams
    engine = place.service._store._engine
    assert engine.pool.checkedout() == 0


def test_a_stream_that_says_nothing_is_kept_open_by_comments(place: PagesPlace):
    identifier = place.request("silent")
    place.service.live._keepalive_s = 0.2
    try:
        with httpx.stream("GET", f"{place.url}/requests/{identifier}/events", timeout=60) as answer:
            lines = answer.iter_lines()
            assert next(line for line in lines if line.startswith(":")) == ": ping"
    finally:
        place.service.live._keepalive_s = 15.0


def test_strangers_can_not_follow_and_too_many_are_turned_away(
    place: PagesPlace, monkeypatch: pytest.MonkeyPatch
):
    hidden = place.request("hidden", repository=PRIVATE)
    assert httpx.get(f"{place.url}/requests/{hidden}/events").status_code == 404
    monkeypatch.setattr("app.pages.live.MAX_STREAMS", 0)
    refused = httpx.get(f"{place.url}/requests/{place.request('full')}/events")
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "10"


def test_a_shutdown_ends_the_streams_at_once(place: PagesPlace):
    identifier = place.request("cut")
    live = place.service.live
    try:
        with httpx.stream("GET", f"{place.url}/requests/{identifier}/events", timeout=60) as answer:
            found = events(answer.iter_lines())
            next(found)
            started = time.monotonic()
            live.close()
            assert list(found) == []
            assert time.monotonic() - started < live._keepalive_s
        assert httpx.get(f"{place.url}/requests/{identifier}/events").status_code == 503
    finally:
        live._closed = False
