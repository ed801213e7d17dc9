"""Refusals in GitHub's own form."""

from typing import Any

import httpx
import pytest
from githubkit import AppInstallationAuthStrategy
from githubkit.exception import RequestFailed

from tests.contract.localhub.conftest import OWNER, REPO, World, branch_on

BASE = f"repos/{OWNER}/{REPO}"


def call(
    world: World, method: str, path: str, body: Any = None, token: str | None = None, **options: Any
) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token or world.maintainer}"} | options.pop("headers", {})
    return httpx.request(
        method, f"{world.served.api_url}{path}", json=body, headers=headers, timeout=60, **options
    )


@pytest.fixture(scope="module")
def issue(shared: World) -> int:
    return call(shared, "POST", f"{BASE}/issues", {"title": "for errors"}).json()["number"]


@pytest.fixture(scope="module")
def head(shared: World) -> str:
    return branch_on(shared, "liger-bot/errors", "src/errors.py", "e = 1\n")


@pytest.mark.parametrize(
    ("method", "path", "body", "message"),
    [
        ("POST", "issues", {}, 'Invalid request.\n\n"title" wasn\'t supplied.'),
        ("POST", "issues", {"title": "  "}, "Validation Failed"),
        ("POST", "issues", {"title": "t" * 257}, "Validation Failed"),
        ("POST", "issues", {"title": "t", "body": "x" * 65_537}, "Validation Failed"),
        ("POST", "issues/{issue}/comments", {"body": "x" * 65_537}, "Validation Failed"),
        ("POST", "issues/{issue}/comments", {"body": ""}, "Validation Failed"),
        ("POST", "issues/{issue}/reactions", {"content": "thumbs"}, "Invalid request."),
        ("POST", "pulls", {"title": "t", "head": "no-such", "base": "main"}, "Validation Failed"),
        ("POST", "pulls", {"title": "t", "head": "main", "base": "main"}, "Validation Failed"),
        ("POST", "git/refs", {"ref": "main", "sha": "0" * 40}, "Reference name must start with"),
        ("POST", "git/refs", {"ref": "refs/heads/x", "sha": "0" * 40}, "Object does not exist"),
        ("PATCH", "git/refs/heads/none", {"sha": "0" * 40}, "Reference does not exist"),
        ("POST", "git/commits", {"message": "m", "tree": "0" * 40}, "Tree SHA does not exist"),
        (
            "POST",
            "actions/workflows/verify.yml/dispatches",
            {"ref": "main"},
            "Required input 'nonce' not provided",
        ),
        (
            "POST",
            "actions/workflows/verify.yml/dispatches",
            {"ref": "main", "inputs": {"nonce": "1", "x": "2"}},
            "Unexpected inputs provided",
        ),
        (
            "POST",
            "actions/workflows/verify.yml/dispatches",
            {"ref": "none", "inputs": {"nonce": "1"}},
            "No ref found for: none",
        ),
    ],
)
def test_unprocessable(shared: World, issue: int, method: str, path: str, body: Any, message: str) -> None:
    reply = call(shared, method, f"{BASE}/{path.format(issue=issue)}", body)
    assert reply.status_code == 422, reply.text
    assert reply.json()["message"].startswith(message)
    assert reply.json()["status"] == "422"
    assert reply.json()["documentation_url"].startswith("https://docs.github.com/")


def test_too_long_a_body_names_field_and_limit(shared: World, issue: int) -> None:
    errors = call(shared, "POST", f"{BASE}/issues/{issue}/comments", {"body": "x" * 65_537}).json()["errors"]
    assert errors == [
        {
            "resource": "IssueComment",
            "field": "body",
            "code": "custom",
            "message": "body is too long (maximum is 65536 characters)",
        }
    ]
    assert call(shared, "POST", f"{BASE}/issues/{issue}/comments", {"body": "x" * 65_536}).status_code == 201


def test_second_pull_request_for_a_branch_is_refused(shared: World, head: str) -> None:
    body = {"title": "t", "head": "liger-bot/errors", "base": "main"}
    assert call(shared, "POST", f"{BASE}/pulls", body).status_code == 201
    again = call(shared, "POST", f"{BASE}/pulls", body | {"head": f"{OWNER}:liger-bot/errors"})
    assert (
        again.json()["errors"][0]["message"] == f"A pull request already exists for {OWNER}:liger-bot/errors."
    )


ANNOTATION = {"path": "a.py", "start_line": 1, "end_line": 1, "annotation_level": "notice", "message": "m"}
ACTION = {"label": "l", "description": "d", "identifier": "i"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"status": "completed"}, "conclusion"),
        ({"status": "waiting"}, "status"),
        ({"conclusion": "stale"}, "conclusion"),
        ({"output": {"summary": "s"}}, '"title" wasn\'t supplied.'),
        ({"output": {"title": "t", "summary": "x" * 65_536}}, "Validation Failed"),
        (
            {"output": {"title": "t", "summary": "s", "annotations": [ANNOTATION] * 51}},
            "No more than 50 items are allowed; 51 were supplied.",
        ),
        ({"actions": [ACTION] * 4}, "No more than 3 items are allowed; 4 were supplied."),
        ({"actions": [ACTION | {"label": "l" * 21}]}, "Only 20 characters are allowed; 21 were supplied."),
        ({"head_sha": "0" * 40}, "No commit found for SHA: " + "0" * 40),
    ],
)
def test_check_run_limits(shared: World, head: str, values: dict[str, Any], message: str) -> None:
    reply = call(
        shared,
        "POST",
        f"{BASE}/check-runs",
        {"name": "c", "head_sha": head, **values},
        token=shared.bot_token(),
    )
    assert reply.status_code == 422, reply.text
    assert message in reply.json()["message"]


def test_check_run_belongs_to_its_app(world: World) -> None:
    head = branch_on(world, "liger-bot/x", "x.py", "x = 1\n")
    bot = world.as_bot()
    run = bot.rest.checks.create(OWNER, REPO, name="c", head_sha=head).parsed_data
    other = world.hub.register_app("other", OWNER)
    installation = world.hub.install_app("other", OWNER)

    stranger = world.client(AppInstallationAuthStrategy(other.id, other.private_key, installation))

    with pytest.raises(RequestFailed) as caught:
        stranger.rest.checks.update(OWNER, REPO, run.id, conclusion="failure")
    assert caught.value.response.status_code == 403


@pytest.mark.parametrize(
    "path",
    [
        "nowhere",
        "repos/a/b",
        f"{BASE}/issues/999999",
        f"{BASE}/issues/x",
        f"{BASE}/issues/comments/1",
        f"{BASE}/pulls/999999",
        f"{BASE}/contents/none.py",
        f"{BASE}/branches/none",
        f"{BASE}/git/ref/heads/none",
        f"{BASE}/git/blobs/{'0' * 40}",
        f"{BASE}/git/blobs/--help",
        f"{BASE}/check-runs/1",
        f"{BASE}/actions/runs/1",
        "users/no-such",
        "apps/no-such",
    ],
)
def test_not_found(shared: World, path: str) -> None:
    reply = call(shared, "GET", path)
    assert reply.status_code == 404, reply.text
    assert reply.json()["status"] == "404"


def test_issue_number_is_no_pull_request(shared: World, issue: int) -> None:
    assert call(shared, "GET", f"{BASE}/pulls/{issue}").status_code == 404


def test_json_that_does_not_parse(shared: World) -> None:
    reply = httpx.post(
        f"{shared.served.api_url}{BASE}/issues",
        content=b"{nope",
        headers={"Authorization": f"Bearer {shared.maintainer}"},
    )
    assert (reply.status_code, reply.json()["message"]) == (400, "Problems parsing JSON")


def test_body_is_json_whatever_curl_calls_it(shared: World) -> None:
    reply = httpx.post(
        f"{shared.served.url}/{BASE}/issues",
        content=b'{"title": "by curl -d"}',
        headers={
            "Authorization": f"Bearer {shared.maintainer}",
            "Content-Type": "application/x-www-form-urlencoded",
        },
    )
    assert (reply.status_code, reply.json()["title"]) == (201, "by curl -d")


def test_user_agent_is_required(shared: World) -> None:
    with httpx.Client() as client:
        client.headers.pop("user-agent")
        assert client.get(f"{shared.served.api_url}zen").status_code == 403


def test_unknown_api_version_is_refused_and_the_chosen_one_named(shared: World) -> None:
    assert call(shared, "GET", "zen", headers={"X-GitHub-Api-Version": "2020-01-01"}).status_code == 400
    reply = call(shared, "GET", "zen", headers={"X-GitHub-Api-Version": "2026-03-10"})
    assert reply.headers["X-GitHub-Api-Version-Selected"] == "2026-03-10"
    assert call(shared, "GET", "zen").headers["X-GitHub-Api-Version-Selected"] == "2022-11-28"


def test_what_2026_03_10_removed_is_there_before_it(shared: World, issue: int) -> None:
    for path, key in (
        (f"{BASE}/issues/{issue}", "assignee"),
        (BASE, "has_downloads"),
        ("rate_limit", "rate"),
    ):
        assert key in call(shared, "GET", path).json()
        assert key not in call(shared, "GET", path, headers={"X-GitHub-Api-Version": "2026-03-10"}).json()
