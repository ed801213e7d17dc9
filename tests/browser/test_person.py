"""The main job as a person does it, in Debian's Chromium: comment, read, react, look at the pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.chromium import BROWSER_MARKS
from tests.liger_checkout import liger_checkout
from tests.service_process import Scene, scene

SHOTS = Path(__file__).resolve().parents[2] / ".liger-bot" / "screenshots"
PHONE = {"width": 390, "height": 844}

pytestmark = BROWSER_MARKS


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("browser")
    with scene(folder, liger_checkout(folder / "files"), WORKER_SLOTS="2") as running:
        yield running


def sign_in(page: Page, here: Scene, login: str) -> None:
    page.goto(f"{here.served.url}/{here.repository}")
    page.click(".who summary")
    page.click(f"button[value={login}]")


def shot(page: Page, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_person_gets_a_kernel_from_comment_to_pull_request(here: Scene, browser: Browser):
    page = browser.new_page(viewport={"width": 1180, "height": 1400})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    sign_in(page, here, "maintainer")
    issue = here.open_issue("A fused ReLU squared")
    page.goto(f"{here.served.url}/{here.repository}/issues/{issue}")
    page.get_by_label("comment", exact=True).fill("Nemotron needs it.\n\n/liger dev relu2")
    page.get_by_role("button", name="Comment", exact=True).click()

    here.wait_for_comment(issue, "waiting for your decision", 120)
    page.reload()
    profile = page.locator("article.comment").filter(has_text="waiting for your decision")
    expect(profile).to_contain_text("max(x, 0)²")
    expect(page.get_by_label(re.compile("eyes: 1"))).to_be_visible()
    shot(page, "profile")
    profile.get_by_label("add a reaction").click()
    profile.get_by_label("react +1").click()

    here.wait_for_comment(issue, "ready for review", 300)
    (pull,) = here.call("GET", "/pulls")
    page.goto(f"{here.served.url}/{here.repository}/pull/{pull['number']}")
    for gate in ("style", "correctness", "compile", "benchmark"):
        expect(page.locator("a.check").filter(has_text=f"liger-bot / {gate}")).to_be_visible()
    expect(page.get_by_text("This pull request is still a work in progress")).to_be_visible()
    shot(page, "pull-request")
    page.get_by_role("link", name=re.compile("Files changed")).click()
    expect(page.get_by_text("src/liger_kernel/ops/relu_squared.py").first).to_be_visible()
    shot(page, "files-changed")
    page.goto(f"{here.served.url}/{here.repository}/pull/{pull['number']}/checks")
    expect(page.get_by_text("sm_100").first).to_be_visible()
    shot(page, "checks")

    page.goto(f"{here.service.url}/requests")
    expect(page.get_by_text("/liger dev relu2").first).to_be_visible()
    page.locator("a[href*='/requests/']").first.click()
    expect(page.get_by_text("History")).to_be_visible()
    shot(page, "request")
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert errors == []
    page.close()
