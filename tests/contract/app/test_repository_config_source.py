"""What `.github/liger-bot.yml` decides, read from the local GitHub: who may what, which copy counts, what a broken one does."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from agents.candidate import Candidate
from agents.ports import ModelError, ModelReply, ModelRequest
from app.github import GitHubApp
from app.model_budget import BudgetedModel
from app.policy import PathNotAllowedError
from app.repository_config import ConfigMistake
from app.repository_config_source import is_among
from app.stages import act
from app.stages.target import fetch_base
from app.states import Stage, State
from app.store import NewRequest, Store
from runners.protocol import KernelTarget
from tests.contract.app.conftest import FULL_NAME, Place
from tests.contract.app.test_intake import Desk
from tests.unit.app.profiles import kernel_profile


@pytest.fixture
def desk(place: Place, github: GitHubApp, store: Store, tmp_path: Path) -> Desk:
    desk = Desk(place, github, store, tmp_path / "data")
    desk.ports.configs._fresh_for_s = 0.0
    return desk


def write_config(place: Place, text: str, branch: str = "main", repository: str = FULL_NAME) -> None:
    """A person puts the file on a branch."""
    with place.as_user("maintainer") as client:
        path = f"/repos/{repository}/contents/.github/liger-bot.yml"
        known = client.get(path, params={"ref": branch})
        body = {
            "message": "Configure the bot",
            "content": base64.b64encode(text.encode()).decode(),
            "branch": branch,
        }
        if known.status_code == 200:
            body["sha"] = known.json()["sha"]
        client.put(path, json=body).raise_for_status()


def branch_off(place: Place, name: str) -> None:
    with place.as_user("maintainer") as client:
        tip = client.get(f"/repos/{FULL_NAME}/git/ref/heads/main").json()["object"]["sha"]
        body = {"ref": f"refs/heads/{name}", "sha": tip}
        client.post(f"/repos/{FULL_NAME}/git/refs", json=body).raise_for_status()


async def test_a_broken_file_is_answered_with_its_line_and_nothing_else_happens(desk: Desk):
    write_config(desk.place, "approval_days: 3\n\naprovers: write\n")
    assert (await desk.says("/liger dev relu2")).startswith("the configuration is broken")
    assert desk.engine.started == []
    assert desk.store.recent_requests() == []
    [body] = desk.bodies()
    assert "`.github/liger-bot.yml`" in body or ".github/liger-bot.yml" in body
    assert "line 3: unknown key" in body
    assert "approvers" in body
    # a stranger can't make the bot speak about it
    await desk.says("/liger dev relu2", "stranger")
    assert len(desk.bodies()) == 1


async def test_only_the_default_branch_counts(desk: Desk):
    branch_off(desk.place, "proposal")
    write_config(desk.place, "commands: {dev: read}\n", branch="proposal")
    assert (await desk.says("/liger dev relu2", "reader")).startswith("refused")
    write_config(desk.place, "commands: {dev: read}\n")
    assert await desk.says("/liger dev relu2", "reader") == "followed: dev"


async def test_a_command_may_be_for_maintainers_alone(desk: Desk):
    write_config(desk.place, "commands: {dev: maintain, autopatch: nobody}\n")
    assert (await desk.says("/liger dev relu2")).startswith("refused")
    assert "for people with maintain access here" in desk.bodies()[-1]
    assert (await desk.says("/liger autopatch qwen3")).startswith("refused")
    assert "is for nobody here" in desk.bodies()[-1]
    desk.place.hub.set_collaborator(FULL_NAME, "maintainer", "maintain")
    assert await desk.says("/liger dev relu2") == "followed: dev"


async def test_a_command_may_be_for_a_named_person(desk: Desk):
    write_config(desk.place, "commands: {dev: {logins: [Reader]}}\n")
    assert (await desk.says("/liger dev relu2")).startswith("refused")
    assert await desk.says("/liger dev relu2", "reader") == "followed: dev"


async def test_an_approval_takes_an_approver(desk: Desk):
    write_config(desk.place, "approvers: maintain\n")
    request = await desk.waiting()
    comment = desk.store.request(request.id).status_comment_id
    assert comment is not None
    desk.place.react(comment, "+1")
    await desk.approvals.read(request.id)
    await desk.says("/liger approve")
    assert desk.store.request(request.id).state == State.awaiting_approval
    assert "`/liger approve` is for people with maintain access here" in desk.bodies()[-1]
    desk.place.hub.set_collaborator(FULL_NAME, "maintainer", "maintain")
    await desk.approvals.read(request.id)
    assert desk.engine.started[-1] == (Stage.act, request.id, 1)


async def test_an_approver_without_write_access_is_none(desk: Desk):
    write_config(desk.place, "approvers: {logins: [reader]}\n")
    request = await desk.waiting()
    comment = desk.store.request(request.id).status_comment_id
    assert comment is not None
    desk.place.react(comment, "+1", "reader")
    desk.place.react(comment, "+1", "maintainer")
    await desk.approvals.read(request.id)
    assert desk.store.request(request.id).state == State.awaiting_approval


async def test_the_requester_alone_may_not_approve_where_the_file_says_so(desk: Desk):
    write_config(desk.place, "requester_may_approve: false\n")
    request = await desk.waiting()
    assert "other than" in desk.bodies()[-1]
    await desk.says("/liger approve")
    assert desk.store.request(request.id).state == State.awaiting_approval
    assert "second person" in desk.bodies()[-1]


async def test_a_profile_expires_when_the_file_says_so(desk: Desk):
    request = await desk.waiting()
    write_config(desk.place, "approval_days: 0.0000001\n")
    await desk.approvals.poll()
    assert desk.store.request(request.id).state == State.expired


async def test_an_answer_under_a_broken_file_waits_and_says_so_once(desk: Desk):
    request = await desk.waiting()
    write_config(desk.place, "approval_days: never\n")
    comment = desk.store.request(request.id).status_comment_id
    assert comment is not None
    desk.place.react(comment, "+1")
    for _ in range(2):
        await desk.approvals.read(request.id)
    assert desk.store.request(request.id).state == State.awaiting_approval
    assert ["line 1: `approval" in one or "approval_days" in one for one in desk.bodies()[1:]] == [True]
    write_config(desk.place, "approval_days: 7\n")
    await desk.approvals.read(request.id)
    assert desk.engine.started[-1] == (Stage.act, request.id, 1)


async def test_a_repository_that_can_not_be_read_does_not_hold_up_the_others(desk: Desk):
    new = NewRequest("acme/gone", 99, 1, 1, "maintainer", 7, "dev", "relu2", "relu_squared")
    gone = desk.store.create_request(new)
    desk.store.move(gone.id, State.understanding)
    desk.store.save_profile(gone.id, 1, kernel_profile())
    desk.store.move(gone.id, State.awaiting_approval)
    request = await desk.waiting()
    comment = desk.store.request(request.id).status_comment_id
    assert comment is not None
    desk.place.react(comment, "+1")
    await desk.approvals.poll()
    assert desk.store.request(gone.id).state == State.awaiting_approval
    assert desk.engine.started[-1] == (Stage.act, request.id, 1)


async def test_the_organisation_speaks_where_the_repository_does_not(desk: Desk, tmp_path: Path):
    shared = tmp_path / "shared" / ".github"
    shared.mkdir(parents=True)
    (shared / "liger-bot.yml").write_text("approval_days: 5\n")
    desk.place.hub.create_repository("acme", ".github", shared.parent)
    installation = desk.place.installation_id
    # the App isn't installed there, but anyone may read it
    assert (await desk.ports.configs.of(installation, FULL_NAME)).approval_days == 5
    write_config(desk.place, "requester_may_approve: false\n")
    own = await desk.ports.configs.of(installation, FULL_NAME)
    assert (own.approval_days, own.requester_may_approve) == (14, False)


async def test_a_private_file_of_the_organisation_is_read_where_the_app_is_installed(
    desk: Desk, tmp_path: Path
):
    shared = tmp_path / "shared" / ".github"
    shared.mkdir(parents=True)
    (shared / "liger-bot.yml").write_text("aproval_days: 5\n")
    desk.place.hub.create_repository("acme", ".github", shared.parent, private=True)
    installation = desk.place.installation_id
    assert (await desk.ports.configs.of(installation, FULL_NAME)).approval_days == 14
    desk.place.hub.install_app("liger-bot", "acme", ["kernels", ".github"])
    with pytest.raises(ConfigMistake, match=r"of acme/\.github, line 1: unknown key `aproval_days`"):
        await desk.ports.configs.of(installation, FULL_NAME)


async def test_a_file_that_is_no_text_is_a_broken_one(desk: Desk, tmp_path: Path):
    with desk.place.as_user("maintainer") as client:
        body = {"message": "m", "content": base64.b64encode(b"\xff\xfe\x00").decode(), "branch": "main"}
        client.put(f"/repos/{FULL_NAME}/contents/.github/liger-bot.yml", json=body).raise_for_status()
    with pytest.raises(ConfigMistake, match="is not a text file"):
        await desk.ports.configs.of(desk.place.installation_id, FULL_NAME)


async def test_a_team_counts_only_with_the_permission_to_ask(place: Place, tmp_path: Path):
    place.hub.put_in_team("acme", "kernel-team", "reader")
    asking = {"metadata": "read", "contents": "read", "members": "read"}
    for slug, permissions, expected in (("asks", asking, True), ("blind", {"contents": "read"}, False)):
        app = place.hub.register_app(slug, "acme", permissions=permissions)
        installation = place.hub.install_app(slug, "acme", ["kernels"])
        github = GitHubApp(app.id, app.private_key, place.served.api_url)
        config = Desk(place, github, Store.open("sqlite://"), tmp_path).ports.configs
        write_config(place, "commands: {dev: {teams: [kernel-team]}}\n")
        who = (await config.of(installation, FULL_NAME)).commands.dev
        repository = github.repository(installation, FULL_NAME)
        assert await is_among(who, repository, "reader", "read") is expected
        assert await is_among(who, repository, "stranger", "read") is False
        await github.close()


async def test_the_plan_of_a_profile_keeps_to_the_allowed_paths(desk: Desk):
    write_config(desk.place, "allowed_paths: ['docs/**']\n")
    request = await desk.waiting()
    await desk.says("/liger approve")
    with pytest.raises(PathNotAllowedError, match="fits no pattern of `allowed_paths`"):
        await act.write(desk.ports, request.id)


async def test_a_branch_is_pushed_under_the_prefix_and_within_the_paths(desk: Desk):
    request = await desk.waiting()
    profile = kernel_profile()
    path = profile.files[0].path
    target = KernelTarget(
        op=profile.op, module="m", function_class="F", kernels=["_k"], call_order=["x"], path=path
    )
    made = Candidate(
        files={path: "one = 1\n"}, target=target, tests=[], commit_message="c", pull_title="t", pull_body="b"
    )
    await desk.says("/liger approve")
    desk.store.save_candidate(request.id, 1, 0, made)
    await fetch_base(desk.ports, request.id)

    write_config(desk.place, "allowed_paths: ['docs/**']\n")
    with pytest.raises(PathNotAllowedError, match=path):
        await act.push(desk.ports, request.id)
    write_config(desk.place, f"branch_prefix: bots/kernels/\nallowed_paths: ['{path}']\n")
    sha = await act.push(desk.ports, request.id)
    with desk.place.as_user("maintainer") as client:
        refs = client.get(f"/repos/{FULL_NAME}/git/matching-refs/heads/").json()
    branches = {one["ref"].removeprefix("refs/heads/"): one["object"]["sha"] for one in refs}
    assert branches.pop("main") != sha
    assert branches == {f"bots/kernels/relu-squared-{request.id}": sha}


async def test_what_a_request_spends_on_the_model_is_kept_and_bounded(desk: Desk):
    class Dear:
        async def ask(self, request: ModelRequest) -> ModelReply:
            return ModelReply(data={}, model="dear", cost_usd=0.4)

    request = await desk.waiting(kernel_profile())
    question = ModelRequest(purpose="name", system="s", user="u", json_schema={})
    for _ in range(2):
        await BudgetedModel(Dear(), desk.store, request.id, 0.5).ask(question)
    with pytest.raises(ModelError, match=r"spent \$0\.8000 of the \$0\.5"):
        await BudgetedModel(Dear(), desk.store, request.id, 0.5).ask(question)
    with pytest.raises(ModelError, match="model_usd_per_request"):
        await BudgetedModel(Dear(), desk.store, "other", 0.0).ask(question)
