"""Addresses that people and payloads bring: none leads to another host, another repository's secrets, or another route of the API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from agents.dev.github_url import parse_github_url
from agents.dev.refused import Mistake
from app.deliveries import IssueCommentEvent
from app.github import GitHubApp, NotFoundError
from tests.contract.app.conftest import FULL_NAME, Place, made_place

PRIVATE = "acme/secret-kernels"


@pytest.mark.parametrize(
    "address",
    [
        "http://169.254.169.254/latest/meta-data/iam/x.py",
        "http://127.0.0.1:8000/a/b/blob/main/x.py",
        "http://[::1]/a/b/blob/main/x.py",
        "http://localhost/a/b/blob/main/x.py",
        "https://github.com.evil.example/a/b/blob/main/x.py",
        "https://github.com@evil.example/a/b/blob/main/x.py",
        "https://evil.example/https://github.com/a/b/blob/main/x.py",
        "https://evil.example#@github.com/a/b/blob/main/x.py",
        "https://github.com\\@evil.example/a/b/blob/main/x.py",
        "https://github.com:80@evil.example/a/b/blob/main/x.py",
        "https://github.com:8080/a/b/blob/main/x.py",
        "https://2852039166/a/b/blob/main/x.py",
        "file://github.com/etc/passwd",
    ],
)
def test_no_link_leads_to_another_host(address: str):
    with pytest.raises(Mistake):
        parse_github_url(address)


@pytest.mark.parametrize(
    "address",
    [
        "https://github.com/a/b/blob/main/..%2f..%2f..%2f..%2fuser.py",
        "https://github.com/a/b/blob/main/x%2f..%2f..%2fy.py",
        "https://github.com/a/b/blob/main/%2e%2e/y.py",
        "https://github.com/a/b/blob/main/..%5cy.py",
        "https://github.com/a/b/blob/../x/y.py",
        "https://github.com/a/b/blob/..%2f..%2fc/x/y.py",
        "https://github.com/a/b/blob/%2e/x/y.py",
        "https://github.com/a%2f..%2fc/b/blob/main/y.py",
        "https://github.com/a/b/blob/main/y%00.py",
    ],
)
def test_no_link_leads_to_another_route_of_the_api(address: str):
    with pytest.raises(Mistake):
        parse_github_url(address)


def test_a_branch_may_have_a_slash():
    assert parse_github_url("https://github.com/a/b/blob/feature%2Fx/y.py").ref == "feature/x"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with made_place(tmp_path) as made:
        made.hub.create_repository("acme", "secret-kernels", tmp_path / "files", private=True)
        yield made


@pytest.fixture
async def github(place: Place) -> AsyncIterator[GitHubApp]:
    app = GitHubApp(place.app.id, place.app.private_key, place.served.api_url)
    yield app
    await app.close()


async def test_the_bot_reads_no_private_repository_for_people_of_another(place: Place, github: GitHubApp):
    """The App may read it, being installed there too; who comments elsewhere may not have it read out to them."""
    other = place.hub.install_app("liger-bot", "acme", ["kernels", "secret-kernels"])
    assert await github.repository(other, PRIVATE).read_file("src/ops.py") == "one = 1\n"
    with pytest.raises(NotFoundError):
        await github.repository(other, FULL_NAME).read_public_file(PRIVATE, "src/ops.py", "main")


def payload(**changes: str) -> str:
    person = {"login": changes.get("login", "a-person"), "id": 1, "type": "User"}
    comment = {"id": 1, "body": "/liger help", "user": person, "created_at": "2026-01-01T00:00:00Z"}
    return json.dumps({
        "action": "created", "sender": person, "repository": {"full_name": changes.get("full_name", FULL_NAME)},
        "installation": {"id": 1}, "issue": {"number": 1}, "comment": comment,
    })  # fmt: skip


@pytest.mark.parametrize("login", ["a-person", "dependabot[bot]", "someone_corp", "A1"])
def test_names_that_github_gives_are_understood(login: str):
    assert IssueCommentEvent.model_validate_json(payload(login=login)).sender.login == login
    for name in (FULL_NAME, "acme/.github", "a-b/c.d_e-f"):
        assert IssueCommentEvent.model_validate_json(payload(full_name=name)).repository.full_name == name


@pytest.mark.parametrize(
    "changes",
    [
        {"login": "../../user"}, {"login": "a/b"}, {"login": "a?b"}, {"login": ""}, {"login": "a\n"}, {"login": ".."},
        {"full_name": "acme/.."}, {"full_name": "../acme"}, {"full_name": "acme/a/b"}, {"full_name": "acme"},
        {"full_name": "acme/a?b"}, {"full_name": "acme/a#b"}, {"full_name": "acme/a%2fb"}, {"full_name": "acme/a\n"},
    ],
    ids=repr,
)  # fmt: skip
def test_names_that_would_be_more_than_a_part_of_an_address_are_not(changes: dict[str, str]):
    with pytest.raises(ValidationError):
        IssueCommentEvent.model_validate_json(payload(**changes))
