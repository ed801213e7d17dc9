"""The pages as a browser without scripts uses them."""

import re
from collections.abc import Iterator

import httpx
import pytest

from app.localhub.git_objects import FileChange
from app.localhub.pages.diff import rows_of
from app.localhub.pages.markdown import render_markdown
from tests.contract.localhub.conftest import OWNER, REPO, World, branch_on

HOME = f"/{OWNER}/{REPO}"


class Browser(httpx.Client):
    """Sends forms as the hub's own pages do: with the token that the last page carried."""

    token = ""

    def open(self, path: str) -> str:
        page = self.get(path, follow_redirects=True)
        found = re.search(r'name="form_token" value="(\w+)"', page.text)
        self.token = found[1] if found else self.token
        assert page.status_code == 200, page.text
        return page.text

    def submit(self, path: str, **fields: str) -> httpx.Response:
        return self.post(path, data={"form_token": self.token, **fields})

    def become(self, login: str) -> None:
        self.open("/")
        assert self.submit("/_viewer", login=login, here="/").status_code == 303
        self.open("/")


@pytest.fixture
def browser(shared: World) -> Iterator[Browser]:
    with Browser(base_url=shared.served.url, headers={"Accept": "text/html"}, timeout=60) as client:
        yield client


def new_issue(browser: Browser, title: str, body: str = "") -> str:
    browser.open(f"{HOME}/issues/new")
    made = browser.submit(f"{HOME}/issues", title=title, body=body)
    assert made.status_code == 303
    return made.headers["Location"]


def test_person_chooses_who_they_are_and_comments(shared: World, browser: Browser) -> None:
    assert "choose who you are" in browser.open("/")
    browser.become("maintainer")
    issue = new_issue(browser, "By page", "Hello **there**")
    page = browser.open(issue)
    assert "you are <b>@maintainer</b>" in page
    assert "<strong>there</strong>" in page
    sent = browser.submit(f"{issue}/comments", body="/liger dev relu2\r\n\r\nplease", then="")
    assert sent.headers["Location"] == f"{issue}#new-comment"
    assert shared.hub.deliveries_done()
    heard = shared.ear.of("issue_comment", "created")
    mine = next(item.body for item in heard if item.body["issue"]["html_url"].endswith(issue))
    assert (mine["comment"]["body"], mine["sender"]["login"]) == (
        "/liger dev relu2\r\n\r\nplease",
        "maintainer",
    )


def test_reaction_button_toggles(shared: World, browser: Browser) -> None:
    browser.become("maintainer")
    issue = new_issue(browser, "React")
    number = int(issue.rsplit("/", 1)[1])
    bot = shared.as_bot()
    note = bot.rest.issues.create_comment(OWNER, REPO, number, body="profile").parsed_data
    browser.open(issue)
    for expected in (["+1"], []):
        browser.submit(f"{HOME}/reactions/comment/{note.id}", content="+1")
        found = bot.rest.reactions.list_for_issue_comment(OWNER, REPO, note.id).parsed_data
        assert [item.content for item in found] == expected
    browser.submit(f"{HOME}/reactions/issue/{number}", content="rocket")
    page = browser.open(issue)
    assert 'aria-label="rocket: 1"' in page
    assert browser.submit(f"{HOME}/reactions/issue/{number}", content="bogus").status_code == 422


def test_forms_of_other_sites_are_refused(shared: World, browser: Browser) -> None:
    browser.become("maintainer")
    issue = new_issue(browser, "Forged")
    good = browser.token
    assert browser.post(f"{issue}/comments", data={"body": "x"}).status_code == 403
    assert browser.post(f"{issue}/comments", data={"body": "x", "form_token": "0" * 64}).status_code == 403
    assert browser.post(f"{issue}/comments", data={"body": "x", "form_token": "ü"}).status_code == 403
    foreign = browser.post(
        f"{issue}/comments",
        data={"body": "x", "form_token": good},
        headers={"Origin": "https://evil.example"},
    )
    assert foreign.status_code == 403
    with Browser(base_url=shared.served.url) as other:
        other.become("stranger")
        assert other.post(f"{issue}/comments", data={"body": "x", "form_token": good}).status_code == 403
    cookie = browser.cookies["local_hub"]
    browser.cookies.set(
        "local_hub", cookie.replace(cookie.split(".")[0], "583231", 1), domain="127.0.0.1", path="/"
    )
    assert "choose who you are" in browser.get("/").text or browser.cookies["local_hub"] == cookie


def test_nobody_is_sent_away_and_a_stranger_may_not_merge(shared: World, browser: Browser) -> None:
    branch_on(shared, "liger-bot/page-denied", "src/page_denied.py", "p = 1\n")
    bot = shared.as_bot()
    pull = bot.rest.pulls.create(
        OWNER, REPO, title="t", head="liger-bot/page-denied", base="main"
    ).parsed_data
    browser.open("/")
    assert browser.submit(f"{HOME}/issues", title="no").status_code == 401
    browser.become("stranger")
    assert browser.submit(f"{HOME}/pull/{pull.number}/merge").status_code == 403
    assert "Only those with write access" in browser.open(f"{HOME}/pull/{pull.number}")
    assert browser.submit(f"{HOME}/issues/{pull.number}/comments", body="", then="close").status_code == 403


def test_pull_request_from_draft_to_merged(shared: World, browser: Browser) -> None:
    sha = branch_on(shared, "liger-bot/page", "src/page.py", "def page():\n    return '<script>'\n")
    bot = shared.as_bot()
    pull = bot.rest.pulls.create(
        OWNER, REPO, title="Add <page>", head="liger-bot/page", base="main", draft=True, body="Draft"
    ).parsed_data
    summary = {"title": "All & fine", "summary": "| a | b |\n|---|---|\n| 1 | 2 |"}
    bot.rest.checks.create(
        OWNER, REPO, name="liger-bot / style", head_sha=sha, conclusion="success", output=summary
    )
    bot.rest.checks.create(OWNER, REPO, name="liger-bot / benchmark", head_sha=sha, conclusion="neutral")
    path = f"{HOME}/pull/{pull.number}"
    browser.become("maintainer")
    page = browser.open(path)
    assert "Add &lt;page&gt;" in page
    assert "Draft pull requests can" in page
    assert "All checks have passed" in page
    assert "1 neutral or skipped, 1 successful checks" in page
    assert "<td>1</td>" in browser.open(f"{path}/checks")
    files = browser.open(f"{path}/files")
    assert "src/page.py" in files
    assert "<script>&#39;" not in files
    assert sha[:7] in browser.open(f"{path}/commits")
    assert "src/page.py" in browser.open(f"{HOME}/commit/{sha}")
    assert browser.get(f"{path}.diff").text.startswith("diff --git a/src/page.py")
    assert browser.get(f"{HOME}/blob/liger-bot/page/src/page.py").status_code == 200
    browser.submit(f"{path}/ready")
    browser.submit(f"{path}/reviews", event="APPROVE", body="good")
    assert "Merge pull request" in browser.open(path)
    browser.submit(f"{path}/merge", method="squash")
    merged = browser.open(path)
    assert "Pull request successfully merged and closed" in merged
    assert "approved these changes" in merged
    assert bot.rest.pulls.get(OWNER, REPO, pull.number).parsed_data.merged


def test_check_that_runs_again_and_acts_on_click(shared: World, browser: Browser) -> None:
    sha = branch_on(shared, "liger-bot/again", "src/again.py", "a = 1\n")
    bot = shared.as_bot()
    bot.rest.pulls.create(OWNER, REPO, title="t", head="liger-bot/again", base="main")
    action = {"label": "Explain", "description": "d", "identifier": "explain"}
    run = bot.rest.checks.create(
        OWNER, REPO, name="c", head_sha=sha, conclusion="failure", actions=[action]
    ).parsed_data
    browser.become("maintainer")
    page = browser.open(f"{HOME}/runs/{run.id}")
    assert "Explain" in page
    assert browser.submit(f"{HOME}/runs/{run.id}/rerequest").status_code == 303
    assert browser.submit(f"{HOME}/runs/{run.id}/actions/explain").status_code == 303
    assert browser.submit(f"{HOME}/runs/{run.id}/actions/other").status_code == 404
    shared.hub.deliveries_done()
    heard = [
        item.body
        for item in shared.ear.of("check_run", "requested_action")
        if item.body["check_run"]["id"] == run.id
    ]
    assert heard[0]["requested_action"] == {"identifier": "explain"}


def test_every_page_says_what_may_run_and_files_never_do(shared: World, browser: Browser) -> None:
    home = browser.get(HOME)
    assert "script-src 'self'" in home.headers["Content-Security-Policy"]
    raw = browser.get(f"{HOME}/raw/main/README.md")
    assert raw.headers["Content-Type"].startswith("text/plain")
    assert raw.headers["X-Content-Type-Options"] == "nosniff"
    assert browser.get(f"{HOME}/blob/main/nope").status_code == 404
    assert browser.submit("/_viewer", login="", here="//evil.example").headers.get("Location", "/") == "/"


def test_private_repository_has_no_page_for_strangers(world: World) -> None:
    world.hub.create_repository(OWNER, "secret", private=True)
    with Browser(base_url=world.served.url, headers={"Accept": "text/html"}) as browser:
        browser.become("stranger")
        assert browser.get(f"/{OWNER}/secret").status_code == 404
        assert "secret" not in browser.open("/")


@pytest.mark.parametrize(
    ("source", "shown", "never"),
    [
        ("<script>alert(1)</script>", "&lt;script&gt;", "<script"),
        ("a <img src=x onerror=alert(1)> b", "&lt;img", "<img"),
        (
            "<details onclick=x><summary>s</summary>\n\n**b**\n</details>",
            "&lt;details onclick",
            "<details onclick",
        ),
        (
            "<details open><summary>s</summary>\n\n**b**\n\n</details>",
            "<details open><summary>s</summary>",
            "&lt;",
        ),
        ("[x](javascript:alert(1))", "[x](javascript", "href"),
        ("<!-- liger-bot:1 -->visible", "visible", "liger-bot:1"),
        ("- [x] done\n- [ ] open", '<input type="checkbox" disabled checked>', "[x]"),
        ("| a |\n|---|\n| 1 |", "<td>1</td>", "|"),
        ("```mermaid\ngraph LR\n```", '<pre class="code">', "```"),
        ("![plot](https://far.example/p.png)", 'href="https://far.example/p.png"', "<img"),
        ("@maintainer `@code`", '<span class="mention">@maintainer</span>', '<span class="mention">@code'),
        ("see https://a.example/x?y=1&z=2.", 'href="https://a.example/x?y=1&amp;z=2"', '2."'),
        ('<a href="javascript:x">y</a>', "&lt;a href", "<a href"),
        ("[a](https://b.example 'c\"d')", "c&quot;d", 'c"d'),
    ],
)
def test_markdown_shows_what_github_shows_and_runs_nothing(source: str, shown: str, never: str) -> None:
    html = render_markdown(source)
    assert shown in html
    assert never not in html


def test_a_megabyte_of_markdown_is_rendered_in_time() -> None:
    assert len(render_markdown("x _y_ @z `w` <b>\n" * 4_000)) > 65_536


def test_diff_rows_number_both_sides_and_keep_docstrings_whole() -> None:
    patch = '@@ -1,3 +1,4 @@\n """Doc\n-old\n+new <b>\n+more\n """\n\\ No newline at end of file'
    rows = rows_of(FileChange("a.py", None, "modified", "0" * 40, 2, 1, patch))
    assert [(row.kind, row.old, row.new) for row in rows] == [
        ("hunk", None, None),
        ("context", 1, 1),
        ("removed", 2, None),
        ("added", None, 2),
        ("added", None, 3),
        ("context", 3, 4),
        ("note", None, None),
    ]
    assert "&lt;b&gt;" in rows[3].html
    assert all('class="sd"' in row.html for row in rows[1:6])
