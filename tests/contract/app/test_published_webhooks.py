"""Every webhook that GitHub's own corpus of examples holds, sent to the service: never a 5xx, never an exception of ours."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.deliveries import MODELS
from tests.contract.app.served import REPOSITORY, Served, served_service, signed
from tests.npm import npm_packages

EXAMPLES = "@octokit/webhooks-examples@7.6.1"


@pytest.fixture(scope="module")
def examples() -> list[tuple[str, dict[str, Any]]]:
    """(event, payload) of github.com and of each GitHub Enterprise Server in the corpus."""
    folder = npm_packages("webhooks", EXAMPLES) / "node_modules" / "@octokit" / "webhooks-examples"
    indices = [json.loads(path.read_text()) for path in sorted(folder.glob("*/index.json"))]
    return [(one["name"], payload) for index in indices for one in index for payload in one["examples"]]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served_service(tmp_path_factory.mktemp("webhooks")) as served:
        yield served


def as_ours(payload: dict[str, Any], installation_id: int) -> dict[str, Any]:
    """The same payload as if it came from our installation and repository, so that it is not only ignored."""
    changed = payload | {"installation": {"id": installation_id, "node_id": "x"}}
    if isinstance(payload.get("repository"), dict):
        changed["repository"] = payload["repository"] | {"full_name": REPOSITORY}
    return changed


def test_no_published_webhook_is_too_much(service: Served, examples: list[tuple[str, dict[str, Any]]]):
    assert len(examples) == 726  # of this version of the corpus
    answers: set[int] = set()
    with httpx.Client(timeout=60) as client:
        for event, payload in examples:
            for sent in (payload, as_ours(payload, service.installation_id)):
                body = json.dumps(sent).encode()
                headers = signed(body) | {"X-GitHub-Event": event, "X-GitHub-Delivery": uuid.uuid4().hex}
                answers.add(client.post(f"{service.url}/webhook", content=body, headers=headers).status_code)
    assert answers == {202}
    assert service.faults_after(0) == []


def test_the_corpus_holds_every_event_that_is_read(
    service: Served, examples: list[tuple[str, dict[str, Any]]]
):
    assert set(MODELS) <= {event for event, _ in examples}
    understood = {
        event for event, payload in examples if event in MODELS and fits(event, as_ours(payload, 1))
    }
    assert understood == set(MODELS)


def fits(event: str, payload: dict[str, Any]) -> bool:
    """Whether our model takes it."""
    MODELS[event].model_validate(payload)
    return True
