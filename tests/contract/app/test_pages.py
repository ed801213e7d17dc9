"""The pages over real tables and a local GitHub: filters, escaping, what is shown, and to whom."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from html.parser import HTMLParser

import httpx
import pytest

from app.states import State
from app.store import now
from app.tables import StoredDispatch
from tests.pages_place import PRIVATE, PUBLIC, PagesPlace, pages_place, timings

EVIL = "<script>alert(1)</script>\"'`${x}`"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PagesPlace]:
    with pages_place(tmp_path_factory.mktemp("pages")) as running:
        yield running


@pytest.fixture(scope="module")
def reviewed(place: PagesPlace) -> str:
    """A request that went all the way."""
    identifier = place.request("reviewed_op")
    place.understood(identifier)
    place.approved(identifier)
    place.judged(identifier, timings())
    return identifier


def get(place: PagesPlace, path: str, status: int = 200) -> str:
    answer = httpx.get(f"{place.url}{path}", timeout=60)
    assert answer.status_code == status, answer.text[:500]
    return answer.text


def listed(place: PagesPlace, query: str) -> list[str]:
    """Ids on a page of the list, in order."""
    return re.findall(r'href="/requests/([a-z0-9]{7})">', get(place, f"/requests{query}"))


class Checked(HTMLParser):
    """What strict pages must not have, and whether every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []
        self.open: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        self.problems += [f"{tag} {name}" for name in names if name.startswith("on") or name == "style"]
        if tag == "script" and "src" not in names:
            self.problems.append("inline script")
        for name in ("src", "href", "action"):
            where = names.get(name) or ""
            if where.startswith(("javascript:", "data:", "//")) or (
                tag in {"script", "link", "img"} and "://" in where
            ):
                self.problems.append(f"{tag} {name}={where}")
        if names.get("id"):
            if names["id"] in self.ids:
                self.problems.append(f"id {names['id']} twice")
            self.ids.add(names["id"] or "")
        if tag not in {"meta", "link", "img", "input", "br", "rect", "line"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> closes nothing")


def check(text: str) -> None:
    parser = Checked()
    parser.feed(text)
    assert parser.problems == []
    assert parser.open in ([], ["html"], ["html", "body"])


def test_the_list_is_filtered_by_every_field(place: PagesPlace):
    first = place.request("alpha", requester="Asker")
    second = place.request("beta", verb="autopatch", issue_number=4711)
    place.store.move(second, State.understanding)
    place.store.move(
        second, State.failed, failed_stage="understand", failure={"kind": "fault", "reason": "x"}
    )
    assert {first, second} <= set(listed(place, ""))
    assert listed(place, "?text=alph") == [first]
    assert listed(place, f"?text={first[:5]}") == [first]
    assert listed(place, "?text=%234711") == [second]
    assert listed(place, "?requester=@asker") == [first]
    assert listed(place, "?command=autopatch") == [second]
    assert listed(place, "?state=failed&text=beta") == [second]
    assert listed(place, "?state=ended&text=alpha") == []
    assert listed(place, "?state=open&text=alpha") == [first]
    assert listed(place, f"?repository={PUBLIC}&text=alpha") == [first]
    assert listed(place, "?repository=other/other") == []
    assert listed(place, "?text=alpha&requester=asker&command=dev&state=received") == [first]
    # what only looks like a pattern, a number or a state finds nothing or is left out, and never fails
    assert listed(place, "?text=%25") == []
    assert listed(place, "?text=al_ha") == []
    assert listed(place, "?state=nonsense&text=alpha&page=-3") == [first]
    get(place, "/requests?text=%00%F0%9F%98%80&page=99999999999999&state=%FF&requester=%27%20or%201=1")


def test_the_list_comes_in_pages_newest_first(place: PagesPlace):
    made = [place.request(f"paged{number}") for number in range(53)]
    first, second = listed(place, "?text=paged"), listed(place, "?text=paged&page=2")
    assert first + second == made[::-1]
    assert len(first) == 50
    page = get(place, "/requests?text=paged&page=2")
    assert 'href="/requests?text=paged"' in page
    assert 'aria-current="page"' in page
    assert "There is no page 9" in get(place, "/requests?text=paged&page=9")


def test_nothing_that_people_wrote_is_markup(place: PagesPlace, reviewed: str):
    identifier = place.request(EVIL)
    place.store.log_line(identifier, EVIL)
    place.store.note(identifier, "error", EVIL)
    place.failed(identifier, EVIL)
    for text in (
        get(place, "/requests"),
        get(place, f"/requests?text={EVIL}&requester={EVIL}"),
        get(place, f"/requests/{identifier}"),
        *(get(place, f"/requests/{reviewed}/{tab}") for tab in ("profile", "diff", "reports")),
    ):
        assert "<script>alert" not in text
        check(text)


def test_every_answer_is_strict(place: PagesPlace, reviewed: str):
    for path in (
        "/requests",
        f"/requests/{reviewed}",
        f"/requests/{reviewed}/diff",
        "/requests/none",
        "/static/live.js",
    ):
        headers = httpx.get(f"{place.url}{path}").headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "set-cookie" not in headers
    assert "immutable" in httpx.get(f"{place.url}/static/pages.css").headers["Cache-Control"]
    assert httpx.get(f"{place.url}/static/..%2frender.py").status_code == 404


def test_a_request_shows_its_course_and_its_cost(place: PagesPlace, reviewed: str):
    page = get(place, f"/requests/{reviewed}")
    assert "in review" in page
    assert f"{place.served.url}/{PUBLIC}/issues/" in page
    assert "pull request #9" in page
    assert "16 passed, 6 could not be run here" in page
    assert "$0.00" in page
    assert "History" in page


def test_gpu_minutes_and_every_architecture_are_shown(place: PagesPlace):
    identifier = place.request("on_runners")
    place.understood(identifier)
    place.approved(identifier)
    job = place.job(identifier, "benchmark")
    at = now()
    for architecture, fault in (("sm_90", ""), ("sm_100", "lost")):
        place.store.start_dispatch(
            StoredDispatch(
                id=f"{job.id}-{architecture}",
                job_id=job.id,
                request_id=identifier,
                repository=PUBLIC,
                architecture=architecture,
                labels=["gpu"],
                nonce=f"n-{architecture}",
                head_sha="b" * 40,
                packed="",
                state="settled",
                run_id=1,
                run_url="javascript:alert(1)",
                fault=fault,
                detail="",
                report=None,
                created_at=at,
                sent_at=at,
                started_at=at,
                settled_at=at + timedelta(seconds=90),
            )
        )
    assert "<dd>3.0</dd>" in get(place, f"/requests/{identifier}")
    reports = get(place, f"/requests/{identifier}/reports")
    assert "sm_90" in reports
    assert "lost" in reports
    check(reports)


def test_the_profile_is_shown_with_its_evidence(place: PagesPlace, reviewed: str):
    page = get(place, f"/requests/{reviewed}/profile")
    assert "y = max(x, 0)²" in page
    assert "backward_saved_tensors" in page
    assert "traced in torch" in page
    assert "Approved by <strong>maintainer</strong>" in page
    assert "operation_name" in page
    assert "machine-made; covered by the hash" in re.sub("<[^>]*>", "", page)


def test_the_diff_is_against_the_commit_that_was_read(place: PagesPlace, reviewed: str):
    page = get(place, f"/requests/{reviewed}/diff")
    changed = page.split('<details class="card file"')[1:]
    ops = next(part for part in changed if "<code>src/ops.py</code>" in part)
    assert "changed" in ops
    assert ops.count('<tr class="removed">') == 1
    assert ops.count('<tr class="added">') == 1
    assert "&lt;b&gt;new&lt;/b&gt;" in ops
    kernel = next(part for part in changed if "src/liger_kernel/ops/relu_squared.py</code> <span" in part)
    assert ">new<" in kernel
    assert '<tr class="removed">' not in kernel
    assert "triton" in kernel


def test_the_reports_show_checks_measurements_and_plots(place: PagesPlace, reviewed: str):
    page = get(place, f"/requests/{reviewed}/reports")
    assert "gauntlet/mixed_dtypes" in page
    assert "32 measurements" in page
    assert page.count("<svg") >= 4
    assert "candidate · 0.034 ms (0.03298 to 0.03502)" in page
    # the floor stands in the picture of what was measured: as a bar, and in its words
    assert page.count("predicted floor, not measured · 0.03136 ms") == 2
    assert page.count("Time, forward") == 2
    assert "confined by" in page


def test_a_private_repository_does_not_exist_for_strangers(place: PagesPlace, reviewed: str):
    hidden = place.request("hidden_op", repository=PRIVATE)
    place.understood(hidden)
    for tab in ("", "/profile", "/diff", "/reports", "/events"):
        answer = httpx.get(f"{place.url}/requests/{hidden}{tab}")
        missing = httpx.get(f"{place.url}/requests/abcdefg{tab}")
        assert answer.status_code == missing.status_code == 404
        assert answer.text.replace(hidden, "") == missing.text.replace("abcdefg", "")
    everything = get(place, "/requests?text=hidden")
    assert hidden not in everything
    assert PRIVATE not in everything
    assert "that match" not in everything


def test_secrets_never_reach_a_page(place: PagesPlace):
    token = "ghs_" + "A1" * 20
    identifier = place.request("leaky")
    place.store.log_line(identifier, f"fetch with {token}")
    place.store.note(identifier, "error", f"Authorization: Bearer {token}")
    place.failed(identifier, f"git said {token}")
    page = get(place, f"/requests/{identifier}")
    assert "[redacted]" in page
    assert token not in page


def test_pages_do_not_wait_for_a_writer(place: PagesPlace, reviewed: str):
    with place.store._session() as session:
        session.connection().exec_driver_sql("SELECT 1")  # the write lock is held from here on
        assert httpx.get(f"{place.url}/requests/{reviewed}", timeout=60).status_code == 200


def test_log_lines_are_bounded(place: PagesPlace, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("app.store.watching.LOG_LINES_KEPT", 10)
    identifier = place.request("chatty")
    for number in range(25):
        place.store.log_line(identifier, f"line {number}")
    kept = place.store.log_lines(identifier, 1000)
    assert [line.text for line in kept] == [f"line {number}" for number in range(15, 25)]


def test_without_a_client_id_nobody_is_asked_to_sign_in(place: PagesPlace):
    assert "LIGER_BOT_CLIENT_ID" in get(place, "/login", 404)
    assert "Sign in" not in get(place, "/requests")
    assert "signing in is not set up here" in get(place, "/requests/abcdefg", 404)
