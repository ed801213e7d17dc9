"""Every reply and every webhook against GitHub's published OpenAPI description (API version 2022-11-28).

The description comes from npm's @octokit/openapi, once, into a cache folder; without npm the tests skip and say so.
"""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from githubkit import AppAuthStrategy, AppInstallationAuthStrategy, GitHub, TokenAuthStrategy
from githubkit.cache import MemCacheStrategy
from githubkit.exception import RequestFailed
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from app.localhub.application import API_ROUTERS
from tests.contract.localhub.conftest import OWNER, REPO, World
from tests.contract.localhub.life import live_a_whole_life
from tests.npm import npm_file

VERSION = "23.0.2"
DOCUMENT = "urn:github"
# The package inlines `account` here as a user AND an enterprise at once, which nothing can be; elsewhere in the same
# document the same field is one OR the other.
CONTRADICTION = "GET /app/installations 200: 0/account:"
MEMBER = "package/generated/api.github.com.json"


def _download() -> dict[str, Any]:
    return json.loads(npm_file(f"@octokit/openapi@{VERSION}", MEMBER).read_text())


def _as_json_schema(node: Any) -> Any:
    """OpenAPI 3.0's `nullable` in JSON Schema's own words."""
    if isinstance(node, list):
        return [_as_json_schema(item) for item in node]
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("$ref"), str):
        return {"$ref": f"{DOCUMENT}{node['$ref']}"}
    changed = {
        key: _as_json_schema(value)
        for key, value in node.items()
        if key not in ("example", "examples", "nullable", "discriminator", "xml", "externalDocs")
    }
    if node.get("nullable") is not True:
        return changed
    if isinstance(changed.get("type"), str):
        changed["type"] = [changed["type"], "null"]
        if "enum" in changed and None not in changed["enum"]:
            changed["enum"] = [*changed["enum"], None]
        return changed
    return {"anyOf": [changed, {"type": "null"}]}


def _pattern(path: str) -> re.Pattern[str]:
    """A published path as a pattern. Only some parameters may hold slashes."""
    return re.compile(
        "".join(
            (".+" if part in ("{path}", "{ref}", "{basehead}", "{branch}") else "[^/]+")
            if part.startswith("{")
            else re.escape(part)
            for part in re.split(r"(\{[^}]+\})", path)
        )
        + "$"
    )


class Description:
    """The published description, asked what a reply or a webhook must look like."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        schemas = {"components": {"schemas": _as_json_schema(document["components"]["schemas"])}}
        self._registry: Registry[Any] = Registry().with_resource(
            DOCUMENT, Resource(contents=schemas, specification=DRAFT202012)
        )
        self._paths = [(_pattern(path), path) for path in document["paths"]]

    def _problems(self, schema: dict[str, Any], value: Any) -> list[str]:
        validator = Draft202012Validator(_as_json_schema(schema), registry=self._registry)
        return [
            f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"
            for error in validator.iter_errors(value)
        ]

    def reply_problems(self, method: str, path: str, status: int, body: Any) -> list[str]:
        """What is wrong with a reply; nothing when no form of it is published."""
        fitting = [
            name
            for pattern, name in self._paths
            if pattern.match(path) and method.lower() in self._document["paths"][name]
        ]
        if not fitting:
            return [f"no route for {method} {path}"]
        template = max(fitting, key=lambda name: name.count("/") - name.count("{"))
        published = self._document["paths"][template][method.lower()]["responses"].get(str(status))
        if published is None:
            return [f"{method} {template} never answers {status}"]
        if "$ref" in published:
            published = self._document["components"]["responses"][published["$ref"].rsplit("/", 1)[1]]
        schema = published.get("content", {}).get("application/json", {}).get("schema")
        return [] if schema is None else self._problems(schema, body)

    def webhook_problems(self, event: str, action: str | None, body: Any) -> list[str]:
        """What is wrong with a webhook."""
        name = "-".join(part.replace("_", "-") for part in (event, action) if part)
        operation = self._document["x-webhooks"][name]["post"]
        return self._problems(operation["requestBody"]["content"]["application/json"]["schema"], body)


@pytest.fixture(scope="module")
def description() -> Description:
    return Description(_download())


class Recorder(httpx.HTTPTransport):
    """Asks for the version that the description is of, and keeps every reply."""

    def __init__(self) -> None:
        super().__init__()
        self.replies: list[tuple[str, str, int, bytes]] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.headers["X-GitHub-Api-Version"] = "2022-11-28"
        reply = super().handle_request(request)
        body = reply.read()
        path = request.url.path
        if path.startswith("/api/v3/"):  # the rest is GraphQL, and files that a reply redirected to
            shown = body if "json" in reply.headers.get("content-type", "") else b""
            self.replies.append((request.method, path.removeprefix("/api/v3"), reply.status_code, shown))
        return httpx.Response(reply.status_code, headers=reply.headers, content=body)


def _client(world: World, recorder: Recorder, auth: Any) -> GitHub[Any]:
    return GitHub(
        auth,
        base_url=world.served.api_url,
        auto_retry=False,
        http_cache=False,
        cache_strategy=MemCacheStrategy(),
        transport=recorder,
    )


# What the description leaves out: GraphQL, and the root folder without a slash.
UNPUBLISHED = {("POST", "/graphql"), ("GET", "/repos/{owner}/{repo}/contents")}


def _ask(client: GitHub[Any], method: str, path: str, body: Any = None) -> Any:
    """One request; a refusal is a reply like any other. Returns the JSON of the reply."""
    try:
        reply = client.request(method, path, json=body) if body is not None else client.request(method, path)
    except RequestFailed as refused:
        reply = refused.response
    return reply.json() if reply.content and "json" in reply.headers.get("content-type", "") else None


def _visit_the_rest(world: World, app: GitHub[Any], bot: GitHub[Any], owner: GitHub[Any], sha: str) -> None:
    """Every route that a whole life doesn't touch."""
    repo = f"/repos/{OWNER}/{REPO}"
    bot_ask, owner_ask = (partial(_ask, client) for client in (bot, owner))
    reads = [
        "", "/branches", "/branches/main", "/git/ref/heads/main", "/git/matching-refs/heads/ma", f"/git/commits/{world.root_sha}",
        "/git/trees/main?recursive=1", "/readme", "/contents/README.md", "/contents/src", "/contents/link", "/commits",
        f"/commits/{sha}", f"/compare/main...{sha}", "/issues?state=all", "/issues/1", "/issues/comments", "/issues/1/comments",
        "/issues/1/labels", "/issues/1/reactions", "/labels", "/labels/bug", "/pulls?state=all", "/pulls/2", "/pulls/2/files",
        "/pulls/2/commits", "/pulls/2/reviews", "/pulls/2/comments", "/pulls/2/merge", f"/commits/{sha}/check-runs",
        f"/commits/{sha}/check-suites", "/actions/workflows", "/actions/workflows/verify.yml", "/actions/workflows/verify.yml/runs",
        "/actions/runs", "/collaborators", "/collaborators/maintainer", "/collaborators/maintainer/permission",
        "/issues/999999", "/pulls/999999", "/git/ref/heads/none", "/contents/none",
    ]  # fmt: skip
    for path in reads:
        owner_ask("GET", f"{repo}{path}")
    for path in (
        "/user",
        "/users/maintainer",
        "/users/liger-bot[bot]",
        "/rate_limit",
        "/apps/liger-bot",
        "/versions",
        "/meta",
        "/zen",
    ):
        owner_ask("GET", path)

    note = bot_ask("POST", f"{repo}/issues/1/comments", {"body": "b"})["id"]
    bot_ask("GET", f"{repo}/issues/comments/{note}")
    for subject in (f"{repo}/issues/comments/{note}/reactions", f"{repo}/issues/1/reactions"):
        made = bot_ask("POST", subject, {"content": "eyes"})["id"]
        bot_ask("POST", subject, {"content": "eyes"})
        bot_ask("GET", subject)
        bot_ask("DELETE", f"{subject}/{made}")
    owner_ask("POST", f"{repo}/labels", {"name": "fresh", "color": "00ff00"})
    owner_ask("POST", f"{repo}/labels", {"name": "fresh"})
    owner_ask("PUT", f"{repo}/issues/1/labels", {"labels": ["fresh"]})
    owner_ask("PUT", f"{repo}/issues/1/lock")
    owner_ask("DELETE", f"{repo}/issues/1/lock")
    owner_ask("POST", f"{repo}/issues", {"title": "t" * 257})

    main = bot_ask("GET", f"{repo}/git/ref/heads/main")["object"]["sha"]
    blob = bot_ask("POST", f"{repo}/git/blobs", {"content": "v = 1\n"})["sha"]
    bot_ask("GET", f"{repo}/git/blobs/{blob}")
    entry = {"path": "src/v.py", "mode": "100644", "type": "blob", "sha": blob}
    tree = bot_ask("POST", f"{repo}/git/trees", {"base_tree": main, "tree": [entry]})["sha"]
    commit = bot_ask("POST", f"{repo}/git/commits", {"message": "v", "tree": tree, "parents": [main]})["sha"]
    bot_ask("POST", f"{repo}/git/refs", {"ref": "refs/heads/liger-bot/v", "sha": main})
    bot_ask("PATCH", f"{repo}/git/refs/heads/liger-bot/v", {"sha": commit})
    content = {"message": "m", "content": "dyA9IDEK", "branch": "liger-bot/v"}
    written = bot_ask("PUT", f"{repo}/contents/src/w.py", content)["content"]["sha"]
    bot_ask("DELETE", f"{repo}/contents/src/w.py", {"message": "m", "sha": written, "branch": "liger-bot/v"})
    number = bot_ask("POST", f"{repo}/pulls", {"title": "v", "head": "liger-bot/v", "base": "main"})["number"]
    bot_ask("POST", f"{repo}/pulls", {"title": "v", "head": "liger-bot/v", "base": "main"})
    run = bot_ask("POST", f"{repo}/check-runs", {"name": "v", "head_sha": commit, "status": "in_progress"})
    remark = {
        "path": "src/v.py",
        "start_line": 1,
        "end_line": 1,
        "annotation_level": "notice",
        "message": "m",
    }
    output = {"title": "t", "summary": "s", "annotations": [remark]}
    bot_ask("PATCH", f"{repo}/check-runs/{run['id']}", {"conclusion": "neutral", "output": output})
    bot_ask("GET", f"{repo}/check-runs/{run['id']}")
    bot_ask("GET", f"{repo}/check-runs/{run['id']}/annotations")
    bot_ask("GET", f"{repo}/check-suites/{run['check_suite']['id']}")
    bot_ask("GET", f"{repo}/check-suites/{run['check_suite']['id']}/check-runs")
    owner_ask("PUT", f"{repo}/pulls/{number}/merge", {"merge_method": "squash"})
    owner_ask("GET", f"{repo}/pulls/{number}/merge")
    bot_ask("DELETE", f"{repo}/git/refs/heads/liger-bot/v")

    started = bot_ask(
        "POST",
        f"{repo}/actions/workflows/verify.yml/dispatches",
        {"ref": "main", "inputs": {"nonce": "o"}, "return_run_details": True},
    )
    run_id = started["workflow_run_id"]
    artifact = world.hub.add_artifact(run_id, "report", b"PK")
    bot_ask("GET", f"{repo}/actions/runs/{run_id}")
    job = bot_ask("GET", f"{repo}/actions/runs/{run_id}/jobs")["jobs"][0]["id"]
    bot_ask("GET", f"{repo}/actions/jobs/{job}")
    bot_ask("GET", f"{repo}/actions/runs/{run_id}/artifacts")
    bot_ask("GET", f"{repo}/actions/artifacts/{artifact}")
    bot_ask("GET", f"{repo}/actions/artifacts/{artifact}/zip")
    bot_ask("POST", f"{repo}/actions/runs/{run_id}/cancel")
    bot_ask("GET", "/installation/repositories")

    for path in (
        "/app",
        "/app/installations",
        f"/app/installations/{world.installation_id}",
        f"{repo}/installation",
        f"/orgs/{OWNER}/installation",
        f"/users/{OWNER}/installation",
        "/app/hook/config",
    ):
        _ask(app, "GET", path)
    _ask(app, "PATCH", "/app/hook/config", {"url": world.ear.url})
    _ask(
        app,
        "POST",
        f"/app/installations/{world.installation_id}/access_tokens",
        {"repositories": [REPO], "permissions": {"issues": "read"}},
    )
    world.hub.put_in_team(OWNER, "kernel-team", "maintainer")
    world.hub.add_runner(f"{OWNER}/{REPO}", "box", ["self-hosted", "h100"])
    owner_ask("GET", f"/orgs/{OWNER}/teams/kernel-team/memberships/maintainer")
    owner_ask("POST", f"/app-manifests/{_agreed(world)}/conversions")
    delivery = _ask(app, "GET", "/app/hook/deliveries")[0]["id"]
    _ask(app, "GET", f"/app/hook/deliveries/{delivery}")
    _ask(app, "POST", f"/app/hook/deliveries/{delivery}/attempts")
    world.hub.set_collaborator(f"{OWNER}/{REPO}", "maintainer", "admin")
    owner_ask("GET", f"{repo}/actions/runners")
    owner_ask("PUT", f"{repo}/collaborators/stranger", {"permission": "pull"})


def _agreed(world: World) -> str:
    """The code of an App manifest that a person agreed to on the hub's page."""
    manifest = {"name": "another bot", "url": "http://bot.test", "redirect_url": "http://127.0.0.1:1/back"}
    with httpx.Client(base_url=world.served.url, follow_redirects=True) as browser:
        for path, fields in (("/_viewer", {"login": "maintainer"}), ("/_apps/create", {})):
            token = re.search(r'name="form_token" value="([^"]+)"', browser.get("/").text)
            assert token is not None
            form = {"form_token": token[1], "manifest": json.dumps(manifest), **fields}
            reply = browser.post(path, data=form, follow_redirects=path == "/_viewer")
    return reply.headers["location"].partition("code=")[2]


def _unvisited(replies: list[tuple[str, str, int, bytes]]) -> set[tuple[str, str]]:
    """The routes of the hub that none of the replies came from with a success."""
    routes = [route for router in API_ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    seen = {
        (method, route.path)
        for method, path, status, _ in replies
        for route in routes
        if status < 400 and method in route.methods and route.path_regex.match(path)
    }
    return {(method, route.path) for route in routes for method in route.methods} - seen


def test_every_route_and_every_webhook_is_as_published(
    world: World, tmp_path: Path, description: Description
) -> None:
    recorder = Recorder()
    app = _client(world, recorder, AppAuthStrategy(world.app.id, world.app.private_key))
    installation = AppInstallationAuthStrategy(world.app.id, world.app.private_key, world.installation_id)
    bot, maintainer = (
        _client(world, recorder, installation),
        _client(world, recorder, TokenAuthStrategy(world.maintainer)),
    )
    sha = live_a_whole_life(world, tmp_path, maintainer, bot)
    _visit_the_rest(world, app, bot, maintainer, sha)
    assert world.hub.deliveries_done()

    wrong = []
    for method, path, status, body in recorder.replies:
        assert status < 500, f"{method} {path} {status}"
        parsed = json.loads(body) if body else None
        problems = description.reply_problems(method, path, status, parsed)
        wrong += [f"{method} {path} {status}: {problem}" for problem in problems]
    for heard in world.ear.heard:
        problems = description.webhook_problems(heard.event, heard.action, heard.body)
        wrong += [f"{heard.event}.{heard.action}: {problem}" for problem in problems]
    wrong = [problem for problem in wrong if not problem.startswith(CONTRADICTION)]
    assert not wrong, "\n".join(sorted(set(wrong)))
    assert _unvisited(recorder.replies) == UNPUBLISHED
