"""Who may do what: App JWTs, installation tokens with scope and expiry, users, strangers, nobody."""

import time
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from githubkit.exception import RequestFailed

from tests.contract.localhub.conftest import OWNER, REPO, World


def refusal(caught: pytest.ExceptionInfo[RequestFailed]) -> tuple[int, str]:
    reply = caught.value.response
    return reply.status_code, reply.json()["message"]


def app_jwt(world: World, key: Any = None, **claims: Any) -> str:
    now = int(time.time())
    content = {"iat": now - 10, "exp": now + 540, "iss": str(world.app.id), **claims}
    return jwt.encode(content, key or world.app.private_key, algorithm="RS256")


def ask(world: World, path: str, authorization: str | bytes = "", **options: Any) -> httpx.Response:
    headers = {"Authorization": authorization} if authorization else {}
    return httpx.request(
        options.pop("method", "GET"), f"{world.served.api_url}{path}", headers=headers, **options
    )


def test_app_is_known_by_its_jwt_with_id_or_client_id(shared: World) -> None:
    for issuer in (str(shared.app.id), shared.app.client_id):
        reply = ask(shared, "app", f"Bearer {app_jwt(shared, iss=issuer)}")
        assert (reply.status_code, reply.json()["slug"]) == (200, "liger-bot")


@pytest.mark.parametrize(
    ("claims", "status", "message"),
    [
        ({"exp": -5}, 401, "'Expiration time' claim ('exp') must be a numeric value"),
        ({"exp": 3600}, 401, "'Expiration time' claim ('exp') is too far in the future"),
        ({"iat": 300}, 401, "'Issued at' claim ('iat')"),
        ({"iss": "99"}, 404, "Integration not found"),
    ],
)
def test_jwt_that_does_not_hold_is_refused(
    shared: World, claims: dict[str, Any], status: int, message: str
) -> None:
    now = int(time.time())  # not when the tests are collected: that may be long ago
    claims = {name: now + value if isinstance(value, int) else value for name, value in claims.items()}
    reply = ask(shared, "app", f"Bearer {app_jwt(shared, **claims)}")
    assert reply.status_code == status
    assert message in reply.json()["message"]


def test_jwt_signed_by_another_key_is_refused(shared: World) -> None:
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    reply = ask(shared, "app", f"Bearer {app_jwt(shared, key=other)}")
    assert (reply.status_code, reply.json()["message"]) == (401, "A JSON web token could not be decoded")


def test_jwt_opens_app_routes_alone(shared: World) -> None:
    token = f"Bearer {app_jwt(shared)}"
    assert ask(shared, f"repos/{OWNER}/{REPO}", token).status_code == 401
    assert ask(shared, f"repos/{OWNER}/{REPO}/installation", token).json()["id"] == shared.installation_id
    assert ask(shared, "app", f"Bearer {shared.maintainer}").status_code == 401


def test_installation_token_is_long_lives_an_hour_and_is_kept_as_a_hash(shared: World) -> None:
    app = shared.as_app()
    made = app.rest.apps.create_installation_access_token(shared.installation_id).parsed_data
    assert made.token.startswith(f"ghs_{shared.app.id}_")
    assert len(made.token) > 300
    left = time.mktime(time.strptime(made.expires_at, "%Y-%m-%dT%H:%M:%SZ")) - time.mktime(time.gmtime())
    assert 3590 <= left <= 3600
    stored = (shared.hub.data_dir / "hub.sqlite").read_bytes() + (
        shared.hub.data_dir / "hub.sqlite-wal"
    ).read_bytes()
    assert made.token.encode() not in stored


def test_expired_token_is_bad_credentials(world: World) -> None:
    bot = world.as_bot()
    bot.rest.issues.list_for_repo(OWNER, REPO)
    world.hub.expire_tokens()
    with pytest.raises(RequestFailed) as caught:
        bot.rest.issues.list_for_repo(OWNER, REPO)
    assert refusal(caught) == (401, "Bad credentials")


def test_narrowed_token_may_do_only_that(shared: World) -> None:
    reader = shared.as_bot(permissions={"issues": "read"})
    assert reader.rest.issues.list_for_repo(OWNER, REPO).status_code == 200
    with pytest.raises(RequestFailed) as caught:
        reader.rest.issues.create(OWNER, REPO, title="no")
    assert refusal(caught) == (403, "Resource not accessible by integration")
    assert caught.value.response.headers["X-Accepted-GitHub-Permissions"] == "issues=write"


def test_token_may_not_be_widened(shared: World) -> None:
    app = shared.as_app()
    with pytest.raises(RequestFailed) as caught:
        app.rest.apps.create_installation_access_token(
            shared.installation_id, permissions={"workflows": "write"}
        )
    assert refusal(caught) == (422, "The permissions requested are not granted to this installation.")
    with pytest.raises(RequestFailed) as caught:
        app.rest.apps.create_installation_access_token(shared.installation_id, repositories=["other"])
    assert caught.value.response.status_code == 422


def test_token_reaches_only_the_chosen_repositories(world: World) -> None:
    world.hub.create_repository(OWNER, "second")
    world.hub.create_repository(OWNER, "secret", private=True)
    bot = world.as_bot()
    assert bot.rest.issues.list_for_repo(OWNER, "second").status_code == 200, "public: anyone may read"
    with pytest.raises(RequestFailed) as caught:
        bot.rest.issues.create(OWNER, "second", title="no")
    assert refusal(caught) == (403, "Resource not accessible by integration")
    with pytest.raises(RequestFailed) as caught:
        bot.rest.repos.get(OWNER, "secret")
    assert refusal(caught) == (404, "Not Found")


def test_suspended_installation_may_nothing(world: World) -> None:
    bot, app = world.as_bot(), world.as_app()
    bot.rest.repos.get(OWNER, REPO)
    world.hub.suspend(world.installation_id)
    for call in (
        lambda: bot.rest.repos.get(OWNER, REPO),
        lambda: app.rest.apps.create_installation_access_token(world.installation_id),
    ):
        with pytest.raises(RequestFailed) as caught:
            call()
        assert refusal(caught) == (403, "This installation has been suspended")
    world.hub.suspend(world.installation_id, suspended=False)
    assert bot.rest.repos.get(OWNER, REPO).status_code == 200


def test_installation_is_no_user(shared: World) -> None:
    bot = shared.as_bot()
    with pytest.raises(RequestFailed) as caught:
        bot.rest.users.get_authenticated()
    assert refusal(caught) == (403, "Resource not accessible by integration")
    maintainer = shared.as_maintainer()
    assert maintainer.rest.users.get_authenticated().parsed_data.login == "maintainer"


@pytest.mark.parametrize(
    "value",
    ["Bearer nonsense", "token nonsense", "Basic !!!", "Digest x", "Bearer a.b.c", "Bearer ghp_ünïcode"],
)
def test_bad_credentials(shared: World, value: str) -> None:
    reply = ask(shared, "user", value.encode())
    assert reply.status_code == 401


def test_permission_of_people(world: World) -> None:
    world.hub.create_repository(OWNER, "secret", private=True)
    world.hub.install_app("liger-bot", OWNER)
    for login, role in (("tri", "triage"), ("main", "maintain"), ("boss", "admin")):
        world.hub.create_user(login)
        world.hub.set_collaborator(f"{OWNER}/{REPO}", login, role)
    bot = world.as_bot()

    def permission(login: str, repo: str = REPO) -> tuple[str, str]:
        found = bot.rest.repos.get_collaborator_permission_level(OWNER, repo, login).parsed_data
        return found.permission, found.role_name

    assert permission("maintainer") == ("write", "write")
    assert permission("tri") == ("read", "triage")
    assert permission("main") == ("write", "maintain")
    assert permission("boss") == ("admin", "admin")
    assert permission("stranger") == ("read", "read"), "a public repository: anyone may read"
    assert permission("stranger", "secret") == ("none", "none")
    for nobody in ("no-such-person", "liger-bot[bot]", OWNER):
        with pytest.raises(RequestFailed) as caught:
            permission(nobody)
        assert refusal(caught) == (404, f"{nobody} is not a user")
    world.hub.set_collaborator(f"{OWNER}/{REPO}", "maintainer", None)
    assert permission("maintainer") == ("read", "read")


def test_stranger_may_comment_and_react_but_not_write(shared: World) -> None:
    stranger, maintainer = shared.as_stranger(), shared.as_maintainer()
    issue = stranger.rest.issues.create(OWNER, REPO, title="from a stranger").parsed_data
    note = maintainer.rest.issues.create_comment(OWNER, REPO, issue.number, body="hello").parsed_data
    assert (
        stranger.rest.reactions.create_for_issue_comment(OWNER, REPO, note.id, content="+1").status_code
        == 201
    )
    with pytest.raises(RequestFailed) as caught:
        stranger.rest.issues.update_comment(OWNER, REPO, note.id, body="mine now")
    assert caught.value.response.status_code == 403
    with pytest.raises(RequestFailed) as caught:
        stranger.rest.git.create_ref(OWNER, REPO, ref="refs/heads/x", sha=shared.root_sha)
    assert refusal(caught) == (403, "Must have push access to repository")
    with pytest.raises(RequestFailed) as caught:
        stranger.rest.checks.create(OWNER, REPO, name="c", head_sha=shared.root_sha)
    assert refusal(caught) == (403, "You must authenticate via a GitHub App.")


def test_nobody_may_read_what_is_public_and_write_nothing(shared: World) -> None:
    nobody = shared.as_nobody()
    assert nobody.rest.repos.get(OWNER, REPO).status_code == 200
    with pytest.raises(RequestFailed) as caught:
        nobody.rest.issues.create(OWNER, REPO, title="no")
    assert refusal(caught) == (401, "Requires authentication")


def test_private_repository_is_not_found_for_strangers(world: World) -> None:
    world.hub.create_repository(OWNER, "secret", private=True)
    for client in (world.as_stranger(), world.as_nobody()):
        with pytest.raises(RequestFailed) as caught:
            client.rest.repos.get(OWNER, "secret")
        assert refusal(caught) == (404, "Not Found")


def test_admin_interface_answers_no_browser_and_no_foreign_name(shared: World) -> None:
    url = f"{shared.served.url}/_hub/users"
    assert httpx.post(url, json={"login": "x"}, headers={"Origin": shared.served.url}).status_code == 403
    assert httpx.post(url, json={"login": "x"}, headers={"Host": "evil.example"}).status_code == 403
    made = httpx.post(url, json={"login": "fresh"}).json()
    assert ask(shared, "user", f"Bearer {made['token']}").json()["login"] == "fresh"
