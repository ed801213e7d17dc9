"""Many writers at once: each waits its turn, none for a turn that can't come."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.contract.localhub.conftest import OWNER, REPO, World

EACH = 25
PATIENCE_S = 15.0  # half of what SQLite waits for a lock before it gives up


def test_writers_through_every_door_do_not_wait_for_each_other(world: World) -> None:
    """What arrives as raw bytes is read on the event loop, on which other writers' transactions end: it must not write there."""
    person = world.as_maintainer()
    issue = person.rest.issues.create(OWNER, REPO, title="busy").parsed_data.number
    person.rest.actions.create_workflow_dispatch(OWNER, REPO, "verify.yml", ref="main", inputs={"nonce": "n"})
    (run,) = person.rest.actions.list_workflow_runs_for_repo(OWNER, REPO).parsed_data.workflow_runs
    api, web = f"{world.served.url}/api/v3/repos/{OWNER}/{REPO}", world.served.url
    headers = {"Authorization": f"Bearer {world.maintainer}"}

    def comment(client: httpx.Client, number: int) -> httpx.Response:
        return client.post(f"{api}/issues/{issue}/comments", json={"body": f"{number}"}, headers=headers)

    def artifact(client: httpx.Client, number: int) -> httpx.Response:
        return client.post(f"{web}/_hub/workflow-runs/{run.id}/artifacts/a{number}", content=b"zip")

    def sign_in(client: httpx.Client, number: int) -> httpx.Response:
        return client.post(f"{web}/login/oauth/access_token", data={"code": f"{number}"})

    def repeat(ask: Callable[[httpx.Client, int], httpx.Response]) -> float:
        longest = 0.0
        with httpx.Client(timeout=60) as client:
            for number in range(EACH):
                started = time.monotonic()
                answer = ask(client, number)
                longest = max(longest, time.monotonic() - started)
                assert answer.status_code < 300, answer.text
        return longest

    with ThreadPoolExecutor(8) as pool:
        longest = max(
            pool.map(repeat, [comment, comment, comment, artifact, comment, comment, sign_in, comment])
        )
    assert longest < PATIENCE_S
