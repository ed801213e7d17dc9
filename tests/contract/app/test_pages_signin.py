"""Signing in through the local GitHub, and what it opens."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from app.pages.sealed import Seal
from app.pages.signin import own_path
from tests.pages_place import PRIVATE, PagesPlace, pages_place


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PagesPlace]:
    with pages_place(tmp_path_factory.mktemp("signin"), sign_in=True) as running:
        yield running


@pytest.fixture(scope="module")
def hidden(place: PagesPlace) -> str:
    return place.request("hidden_op", repository=PRIVATE)


class Browser:
    """A person with cookies, who follows links between the two servers by hand."""

    def __init__(self, place: PagesPlace, login: str):
        self.place, self.http = place, httpx.Client(timeout=60)
        if login:
            page = self.http.get(place.served.url).text
            form = {"form_token": _form_token(page), "login": login, "here": "/"}
            self.http.post(f"{place.served.url}/_viewer", data=form)

    def begin(self, to: str = "/requests") -> httpx.Response:
        return self.http.get(f"{self.place.url}/login", params={"to": to})

    def agree(self, authorize_url: str, agreed: str = "yes") -> str:
        """Answer GitHub's question; returns where it sends the browser."""
        page = self.http.get(authorize_url)
        assert page.status_code == 200, page.text
        asked = re.search(r'name="asked" value="([^"]*)"', page.text)
        assert asked is not None
        form = {
            "form_token": _form_token(page.text),
            "asked": asked[1].replace("&amp;", "&"),
            "agreed": agreed,
        }
        answer = self.http.post(f"{self.place.served.url}/login/oauth/authorize", data=form)
        assert answer.status_code == 302
        return answer.headers["location"]

    def sign_in(self, to: str = "/requests") -> httpx.Response:
        return self.http.get(self.agree(self.begin(to).headers["location"]))

    def get(self, path: str) -> httpx.Response:
        return self.http.get(f"{self.place.url}{path}")


def _form_token(page: str) -> str:
    found = re.search(r'name="form_token" value="([^"]*)"', page)
    assert found is not None
    return found[1]


def test_a_reader_signs_in_and_sees_what_was_hidden(place: PagesPlace, hidden: str):
    browser = Browser(place, "reader")
    before = browser.get(f"/requests/{hidden}")
    assert before.status_code == 404
    assert f"/login?to=/requests/{hidden}" in before.text
    back = browser.sign_in(f"/requests/{hidden}")
    assert back.status_code == 303
    assert back.headers["location"] == f"/requests/{hidden}"
    assert browser.get(f"/requests/{hidden}").status_code == 200
    listing = browser.get("/requests").text
    assert "<strong>reader</strong>" in listing
    assert hidden in listing
    assert PRIVATE in listing


def test_the_address_that_github_is_asked_at_carries_state_and_challenge(place: PagesPlace):
    answer = Browser(place, "").begin()
    asked = parse_qs(urlsplit(answer.headers["location"]).query)
    assert asked["code_challenge_method"] == ["S256"]
    assert len(asked["state"][0]) >= 32
    assert len(asked["code_challenge"][0]) == 43
    assert asked["redirect_uri"] == [f"{place.url}/login/callback"]
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower()
    assert "Secure" not in cookie  # the test's address is plain http
    assert asked["state"][0] not in cookie  # sealed


def test_who_can_not_read_the_repository_sees_nothing_of_it(place: PagesPlace, hidden: str):
    browser = Browser(place, "stranger")
    browser.sign_in()
    answer = browser.get(f"/requests/{hidden}")
    assert answer.status_code == 404
    assert "stranger can&#39;t read" in answer.text.replace("can't", "can&#39;t")
    assert browser.get(f"/requests/{hidden}/events").status_code == 404
    assert hidden not in browser.get("/requests").text


def test_a_session_is_opaque_and_can_not_be_forged(place: PagesPlace, hidden: str):
    browser = Browser(place, "reader")
    cookie = browser.sign_in().headers["set-cookie"]
    sealed = re.search(r"liger-bot-session=([^;]+)", cookie)
    assert sealed is not None
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower()
    assert "ghu_" not in cookie
    for forged in (
        sealed[1][:-4] + "AAAA",
        "x",
        "",
        Seal("another secret", "session").close({"login": "reader", "token": place.tokens["reader"]}),
    ):
        answer = httpx.get(f"{place.url}/requests/{hidden}", cookies={"liger-bot-session": forged})
        assert answer.status_code == 404
    secret = place.settings.client_secret.get_secret_value()
    assert Seal(secret, "session").open(sealed[1], 60) is not None
    assert Seal(secret, "session").open(sealed[1], -1) is None  # too old
    assert Seal(secret, "sign-in flow").open(sealed[1], 60) is None  # sealed for something else


def test_a_callback_that_did_not_begin_here_is_refused(place: PagesPlace):
    victim, attacker = Browser(place, "reader"), Browser(place, "stranger")
    theirs = attacker.agree(attacker.begin().headers["location"])
    answer = victim.http.get(theirs)  # the attacker's code and state in the victim's browser
    assert answer.status_code == 400
    assert "liger-bot-session" not in answer.headers.get("set-cookie", "")
    victim.begin()
    assert victim.http.get(theirs).status_code == 400  # begun, but with another state
    assert attacker.http.get(theirs).status_code == 303
    assert attacker.http.get(theirs).status_code == 400  # once


def test_a_code_without_its_verifier_is_worth_nothing(place: PagesPlace):
    browser = Browser(place, "reader")
    back = browser.agree(browser.begin().headers["location"])
    code = parse_qs(urlsplit(back).query)["code"][0]
    given = {
        "client_id": place.settings.client_id,
        "client_secret": place.settings.client_secret.get_secret_value(),
        "code": code,
        "code_verifier": "guessed",
    }
    stolen = httpx.post(
        f"{place.served.url}/login/oauth/access_token", data=given, headers={"Accept": "application/json"}
    )
    assert stolen.json()["error"] == "bad_verification_code"
    assert browser.http.get(back).status_code == 403  # the code is used up, and the page says so


def test_a_person_may_say_no(place: PagesPlace):
    browser = Browser(place, "reader")
    answer = browser.http.get(browser.agree(browser.begin().headers["location"], agreed=""))
    assert answer.status_code == 403
    assert "You are not signed in" in answer.text


def test_signing_out_ends_the_token_too(place: PagesPlace, hidden: str):
    browser = Browser(place, "reader")
    browser.sign_in()
    copied = dict(browser.http.cookies)
    cross = browser.http.post(f"{place.url}/logout", headers={"Origin": "https://evil.example"})
    assert cross.status_code == 403
    assert browser.get(f"/requests/{hidden}").status_code == 200
    answer = browser.http.post(f"{place.url}/logout", headers={"Origin": place.url})
    assert answer.status_code == 303
    assert browser.get(f"/requests/{hidden}").status_code == 404
    # a copy of the cookie, made before: its token is known to GitHub no more
    replayed = httpx.get(f"{place.url}/requests/{hidden}", cookies=copied)
    assert replayed.status_code == 303
    assert 'liger-bot-session=""' in replayed.headers["set-cookie"]
    assert browser.http.get(f"{place.url}/logout").status_code == 405


def test_an_answer_of_github_is_kept_for_a_minute(place: PagesPlace, hidden: str):
    browser = Browser(place, "reader")
    browser.sign_in()
    assert browser.get(f"/requests/{hidden}").status_code == 200
    place.hub.set_collaborator(PRIVATE, "reader", None)
    try:
        assert browser.get(f"/requests/{hidden}").status_code == 200
        known = place.service._access._known
        for key, (at, answer) in list(known.items()):
            known[key] = (at - 61, answer)
        assert browser.get(f"/requests/{hidden}").status_code == 404
    finally:
        place.hub.set_collaborator(PRIVATE, "reader", "read")
        known.clear()


def test_no_token_is_in_an_address_or_a_log(place: PagesPlace, caplog: pytest.LogCaptureFixture):
    seen: list[str] = []
    with caplog.at_level(logging.DEBUG):
        browser = Browser(place, "reader")
        browser.http.event_hooks = {
            "request": [lambda request: seen.append(str(request.url))],
            "response": [lambda response: seen.append(response.headers.get("location", ""))],
        }
        browser.sign_in()
        browser.get("/requests")
    secret = place.settings.client_secret.get_secret_value()
    for text in (*seen, caplog.text):
        assert "ghu_" not in text
        assert secret not in text


@pytest.mark.parametrize(
    "path",
    [
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "/requests\\..",
        "/requestsx",
        "/login",
        "/requests/\n",
        "",
        "javascript:alert(1)",
    ],
)
def test_nobody_is_sent_elsewhere_after_signing_in(path: str):
    assert own_path(path) == "/requests"


def test_where_a_person_wanted_to_go_is_kept():
    assert own_path("/requests/abc2345/diff") == "/requests/abc2345/diff"
    assert own_path("/requests?state=open") == "/requests?state=open"


def test_over_https_cookies_are_secure_and_bound_to_the_host(place: PagesPlace):
    from fastapi import Response

    from app.pages.access import Visitor
    from app.pages.signin import SignIn

    settings = place.settings.model_copy(update={"public_url": "https://bot.example.org"})
    response = Response()
    SignIn(settings, place.service._visitors).remember(response, Visitor("reader", "t"))
    cookie = response.headers["set-cookie"]
    assert cookie.startswith("__Host-liger-bot-session=")
    assert "Secure" in cookie
    assert "Path=/" in cookie
    assert "Domain" not in cookie
