"""Dispatch in both API versions and on Enterprise Server, runs, artifacts."""

import io
import zipfile
from collections.abc import Iterator

import httpx
import pytest
from githubkit.exception import RequestFailed

from tests.contract.localhub.conftest import OWNER, REPO, World, listening, made_world

PATH = f"repos/{OWNER}/{REPO}/actions/workflows/verify.yml/dispatches"


def dispatch(world: World, version: str | None = None, **extra: object) -> httpx.Response:
    headers = {"Authorization": f"Bearer {world.maintainer}"} | (
        {"X-GitHub-Api-Version": version} if version else {}
    )
    return httpx.post(
        f"{world.served.api_url}{PATH}",
        json={"ref": "main", "inputs": {"nonce": "n"}, **extra},
        headers=headers,
    )


def test_reply_depends_on_the_api_version(shared: World) -> None:
    assert dispatch(shared).status_code == 204
    assert set(dispatch(shared, return_run_details=True).json()) == {"workflow_run_id", "run_url", "html_url"}
    assert dispatch(shared, "2026-03-10").status_code == 200


def test_run_is_found_by_the_nonce_in_its_title(shared: World) -> None:
    bot = shared.as_bot()
    run_id = bot.rest.actions.create_workflow_dispatch(
        OWNER, REPO, "verify.yml", ref="main", inputs={"nonce": "abc123"}
    ).parsed_data.workflow_run_id
    runs = bot.rest.actions.list_workflow_runs(
        OWNER, REPO, "verify.yml", event="workflow_dispatch"
    ).parsed_data.workflow_runs
    assert [run.id for run in runs if run.display_title == "verify abc123"] == [run_id]
    shared.hub.advance_run(run_id, "in_progress")
    assert bot.rest.actions.get_workflow_run(OWNER, REPO, run_id).parsed_data.status == "in_progress"
    shared.hub.advance_run(run_id, "completed", "success")
    with pytest.raises(RequestFailed) as caught:
        bot.rest.actions.cancel_workflow_run(OWNER, REPO, run_id)
    assert caught.value.response.status_code == 409
    assert bot.rest.actions.get_workflow(OWNER, REPO, "verify.yml").parsed_data.name == "verify"


def test_artifact_comes_by_way_of_a_redirect(shared: World) -> None:
    bot = shared.as_bot()
    run_id = bot.rest.actions.create_workflow_dispatch(
        OWNER, REPO, "verify.yml", ref="main", inputs={"nonce": "a"}
    ).parsed_data.workflow_run_id
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("report.json", "{}")
    shared.hub.add_artifact(run_id, "report", packed.getvalue())
    artifact = bot.rest.actions.list_workflow_run_artifacts(OWNER, REPO, run_id).parsed_data.artifacts[0]
    assert artifact.size_in_bytes == len(packed.getvalue())
    first = httpx.get(artifact.archive_download_url, headers={"Authorization": f"Bearer {shared.maintainer}"})
    assert first.status_code == 302
    assert httpx.get(first.headers["Location"]).content == packed.getvalue(), (
        "the address needs no credentials"
    )
    assert httpx.get(artifact.archive_download_url).status_code == 401


def test_dispatch_needs_the_actions_permission(shared: World) -> None:
    bot = shared.as_bot(permissions={"contents": "write"})
    with pytest.raises(RequestFailed) as caught:
        bot.rest.actions.create_workflow_dispatch(
            OWNER, REPO, "verify.yml", ref="main", inputs={"nonce": "a"}
        )
    assert caught.value.response.status_code == 403


@pytest.fixture
def enterprise(tmp_path: object) -> Iterator[World]:
    with listening() as ear, made_world(tmp_path, ear, enterprise=True) as made:  # type: ignore[arg-type]
        yield made


def test_enterprise_server_takes_no_return_run_details_and_ten_inputs(enterprise: World) -> None:
    refused = dispatch(enterprise, return_run_details=True)
    assert refused.status_code == 400
    assert refused.headers["X-GitHub-Enterprise-Version"]
    assert dispatch(enterprise).status_code == 204
    many = dispatch(enterprise, inputs={f"i{number}": "x" for number in range(11)})
    assert "No more than 10 properties are allowed; 11 were supplied." in many.json()["message"]
