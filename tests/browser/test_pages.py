"""The bot's own pages in Debian's Chromium: wide and on a phone, light and dark, by keyboard, live, and behind a sign-in.

Screenshots are kept in the folder that LIGER_BOT_SCREENSHOTS names, else in pytest's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, expect

from app.states import State
from tests.chromium import BROWSER_MARKS
from tests.pages_place import PRIVATE, PagesPlace, pages_place, timings

PHONE = {"width": 360, "height": 740}
WIDE = {"width": 1180, "height": 900}
EVIL = "<img src=x onerror=alert(1)>"

pytestmark = BROWSER_MARKS


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PagesPlace]:
    with pages_place(tmp_path_factory.mktemp("pages"), sign_in=True) as running:
        running.service.live._look_every_s = 0.1
        yield running


@pytest.fixture(scope="module")
def reviewed(place: PagesPlace) -> str:
    identifier = place.request("relu2")
    place.understood(identifier)
    place.approved(identifier)
    place.judged(identifier, timings())
    for op, state in (
        ("gelu_tanh", State.understanding),
        (EVIL, None),
        ("soft_gate(x, cap=30.0) with a rather long expression that has to wrap somewhere", None),
    ):
        other = place.request(op)
        if state:
            place.store.move(other, state)
    place.failed(place.request("rms_norm"), "the disk is full")
    for number in range(60):
        place.request(f"op_{number}")
    return identifier


@pytest.fixture(scope="module")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(os.environ.get("LIGER_BOT_SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Watch:
    """What a page does that it must not: errors, violations of its policy, requests to other servers."""

    def __init__(self, context: BrowserContext, place: PagesPlace):
        self.bad: list[str] = []
        own = (place.url, place.served.url)
        context.on("weberror", lambda error: self.bad.append(f"error: {error.error}"))
        context.on(
            "console",
            lambda message: (
                self.bad.append(message.text)
                if message.type == "error" and "404" not in message.text
                else None
            ),
        )
        context.on(
            "request", lambda request: None if request.url.startswith(own) else self.bad.append(request.url)
        )


def tabs(identifier: str) -> dict[str, str]:
    return {"overview": f"/requests/{identifier}"} | {
        name: f"/requests/{identifier}/{name}" for name in ("profile", "diff", "reports")
    }


@pytest.mark.parametrize(
    ("device", "size", "scheme"),
    [("wide", WIDE, "light"), ("wide-dark", WIDE, "dark"), ("phone", PHONE, "dark")],
)
def test_every_page_fits_and_keeps_its_policy(
    place: PagesPlace,
    reviewed: str,
    browser: Browser,
    shots: Path,
    device: str,
    size: dict[str, int],
    scheme: str,
):
    context = browser.new_context(viewport=size, color_scheme=scheme)  # type: ignore[arg-type] - Playwright's own words
    watch, page = Watch(context, place), context.new_page()
    for name, path in (
        {"list": "/requests", "nothing": "/requests?text=no-such-thing", "missing": "/requests/abcdefg"}
        | tabs(reviewed)
    ).items():
        page.goto(f"{place.url}{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], name
        too_low = page.evaluate(CONTRAST)
        assert too_low == [], f"{name}: {too_low}"
        page.screenshot(path=shots / f"{name}-{device}.png", full_page=True)
        page.evaluate("document.querySelectorAll('details').forEach((element) => { element.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], name
    context.close()
    assert watch.bad == []


# Every text against what lies behind it: WCAG's ratio must be 4.5, or 3 for large letters.
CONTRAST = """() => {
  const parse = (color) => { const c = color.match(/[\\d.]+/g).map(Number); return c.length > 3 ? c : [...c, 1]; };
  const light = (c) => c.slice(0, 3).map((v) => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
  const luminance = (c) => { const [r, g, b] = light(c); return .2126 * r + .7152 * g + .0722 * b; };
  const behind = (element) => { for (let e = element; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] > 0) return c; } return [255, 255, 255, 1]; };
  const low = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest("option, noscript, svg, .sr-only, .skip")) continue;
    const style = getComputedStyle(element), front = parse(style.color);
    const [a, b] = [luminance(front), luminance(behind(element))].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) low.add(`${element.tagName}.${element.className} ${ratio.toFixed(2)}`);
  }
  return [...low];
}"""


def test_the_list_is_searched_by_keyboard_alone(place: PagesPlace, reviewed: str, browser: Browser):
    page = browser.new_page(viewport=WIDE)
    page.goto(f"{place.url}/requests")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("relu2")
    page.keyboard.press("Enter")
    expect(page.get_by_role("listitem").filter(has_text="/liger dev relu2")).to_have_count(1)
    page.get_by_role("link", name="/liger dev relu2").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("/liger dev relu2")
    page.go_back()
    page.get_by_role("link", name="Clear").click()
    page.get_by_role("link", name="Older ›").click()
    expect(page.get_by_role("link", name="Page 2")).to_have_attribute("aria-current", "page")
    page.get_by_label("State").select_option("failed")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".requests > li")).to_have_count(1)
    page.close()


def test_screen_readers_find_their_way(place: PagesPlace, reviewed: str, browser: Browser):
    page = browser.new_page(viewport=WIDE)
    for path in ("/requests", *tabs(reviewed).values()):
        page.goto(f"{place.url}{path}")
        assert page.locator("html").get_attribute("lang") == "en"
        assert (
            page.get_by_role("main").count()
            == page.get_by_role("banner").count()
            == page.get_by_role("heading", level=1).count()
            == 1
        )
        # every control and every region that scrolls has a name
        unnamed = page.evaluate("""() => [...document.querySelectorAll('a, button, input, select, [role=region], [role=img], summary')]
          .filter((e) => !(e.innerText ?? '').trim() && !e.getAttribute('aria-label') && !e.labels?.length).map((e) => e.outerHTML.slice(0, 80))""")
        assert unnamed == []
    page.goto(f"{place.url}/requests/{reviewed}/reports")
    expect(
        page.get_by_role("img", name="Time, forward · bfloat16 · events. 8192 × 4096: candidate · 0.034 ms")
    ).to_be_visible()
    page.close()


def test_a_request_is_followed_live(place: PagesPlace, browser: Browser, shots: Path):
    identifier = place.request("live_op")
    context = browser.new_context(viewport=PHONE, color_scheme="light")
    watch, page = Watch(context, place), context.new_page()
    page.goto(f"{place.url}/requests/{identifier}")
    expect(page.locator(".live")).to_have_text("live")
    page.evaluate("document.body.dataset.mark = 'the same page'")
    place.store.move(identifier, State.understanding)
    expect(page.locator("h1 .pill")).to_have_text("understanding")
    expect(page.get_by_role("status")).to_have_text("The request is now: understanding")
    place.store.log_line(identifier, f"tracing {EVIL}")
    expect(page.locator(".log")).to_contain_text(EVIL)
    expect(page.locator(".stage.running")).to_contain_text("running for")
    first = page.locator(".stage.running [data-since]").inner_text()
    expect(page.locator(".stage.running [data-since]")).not_to_have_text(first)
    page.screenshot(path=shots / "live-phone.png", full_page=True)
    # a connection that breaks is taken up again, with what was missed
    context.set_offline(True)
    place.service.live.close()
    expect(page.locator(".live")).to_have_text("connecting again")
    place.store.log_line(identifier, "said while nobody listened")
    place.service.live._closed = False
    context.set_offline(False)
    expect(page.locator(".log")).to_contain_text("said while nobody listened", timeout=20_000)
    place.failed(identifier, "the disk is full")
    expect(page.locator(".callout.bad")).to_contain_text("Our fault, not yours")
    expect(page.locator(".live")).to_have_text("ended")
    assert page.evaluate("document.body.dataset.mark") == "the same page"
    context.close()
    assert [one for one in watch.bad if "ERR_INTERNET_DISCONNECTED" not in one] == []


def test_without_scripts_everything_can_be_read(place: PagesPlace, reviewed: str, browser: Browser):
    context = browser.new_context(viewport=WIDE, java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{place.url}/requests/{reviewed}")
    expect(page.get_by_role("link", name="correctness")).to_be_visible()
    page.get_by_role("link", name="Diff").click()
    expect(page.locator("table.diff").first).to_be_visible()
    context.close()


def test_a_private_request_opens_after_signing_in(place: PagesPlace, browser: Browser, shots: Path):
    identifier = place.request("secret_op", repository=PRIVATE)
    context = browser.new_context(viewport=PHONE)
    watch, page = Watch(context, place), context.new_page()
    page.goto(place.served.url)
    page.locator(".who summary").click()
    page.locator("button[value=reader]").click()
    page.goto(f"{place.url}/requests/{identifier}")
    expect(page.get_by_role("heading", level=1)).to_have_text("There is no such request")
    page.screenshot(path=shots / "private-phone.png", full_page=True)
    page.get_by_role("main").get_by_role("link", name="Sign in with GitHub").click()
    page.get_by_role("button", name="Authorize liger-bot").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("/liger dev secret_op")
    assert page.evaluate("document.cookie").count("liger-bot-session") == 0  # scripts can't read it
    expect(page.locator(".live")).to_have_text("live")
    page.screenshot(path=shots / "signed-in-phone.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("link", name="Sign in with GitHub")).to_be_visible()
    page.goto(f"{place.url}/requests/{identifier}")
    expect(page.get_by_role("heading", level=1)).to_have_text("There is no such request")
    context.close()
    assert watch.bad == []
