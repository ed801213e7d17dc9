"""`/liger autopatch` from a comment to a verified draft pull request, and its refusals: the service over HTTP and git."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.liger_checkout import liger_checkout
from tests.service_process import Scene, scene, wait_for

WAITING = "waiting for your decision"
# Ministral came to Liger after this release, and is as small and plain as a model gets.
RELEASE, MODEL = "0.7.0", "ministral"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("autopatch")
    with scene(folder, liger_checkout(folder / "files", RELEASE)) as running:
        yield running


@pytest.mark.slow
@pytest.mark.timeout(900)  # a minute and a half of computing; the machine may be busy with other tests
def test_a_comment_becomes_a_verified_patch_of_a_model(here: Scene):
    issue = here.open_issue("Ministral")
    command = here.comment(issue, f"/liger autopatch {MODEL}")
    here.wait_for_reaction(command, "eyes")
    status = here.wait_for_comment(issue, WAITING, 120)
    assert "| `norm_type` | rms\\_norm |" in status["body"]
    assert "nothing is left out" in status["body"]
    assert f"create `src/liger_kernel/transformers/model/{MODEL}.py`" in status["body"]

    here.comment(issue, "/liger revise output_class=Mine")
    here.wait_for_comment(issue, "a person can't change it")
    here.wait_for_comment(issue, WAITING)
    here.comment(issue, "/liger revise rope=unpatched in_place=false")
    wait_for(
        lambda: WAITING in (body := here.bot_comments(issue)[0]["body"]) and "a person decided so" in body,
        60,
        "the revised profile",
    )
    here.react(here.bot_comments(issue)[0]["id"])

    here.wait_for_comment(issue, "ready for review", 700)
    (pull,) = here.call("GET", "/pulls")
    assert pull["draft"]
    assert pull["head"]["ref"].startswith(f"liger-bot/{MODEL}-")
    assert "Add Liger Kernel support for Ministral models" in pull["title"]
    assert "RoPE is not patched: a person decided so" in pull["body"]
    files = {one["filename"] for one in here.call("GET", f"/pulls/{pull['number']}/files")}
    assert {
        f"src/liger_kernel/transformers/model/{MODEL}.py",
        "src/liger_kernel/transformers/monkey_patch.py",
        "src/liger_kernel/transformers/__init__.py",
        "test/transformers/test_monkey_patch.py",
        "test/utils.py",
        "README.md",
    } <= files
    runs = here.check_runs(pull["head"]["sha"])
    assert {name: (run["status"], run["conclusion"]) for name, run in runs.items()} == {
        "liger-bot / style": ("completed", "success"),
        "liger-bot / correctness": ("completed", "success"),
        "liger-bot / compile": ("completed", "neutral"),
        "liger-bot / benchmark": ("completed", "neutral"),
    }
    assert "no kernels in this change" in runs["liger-bot / compile"]["output"]["title"]
    assert "model/parity/instance_bfloat16" in runs["liger-bot / correctness"]["output"]["summary"]
    assert "Rope" not in runs["liger-bot / correctness"]["output"]["summary"].split("kernel_calls")[1][:200]


@pytest.mark.parametrize(
    ("comment", "answer"),
    [
        ("/liger autopatch acme/tiny", "nothing is fetched from the Hub"),
        ("/liger autopatch llama mistral", "needs one model, and got 2"),
        ("/liger autopatch\n```json\n[]\n```", "not a JSON object"),
    ],
)
def test_what_names_no_model_is_answered_in_one_reply(here: Scene, comment: str, answer: str):
    issue = here.open_issue()
    here.comment(issue, comment)
    here.wait_for_comment(issue, answer)
    assert len(here.bot_comments(issue)) == 1


@pytest.mark.parametrize(
    ("comment", "answer"),
    [
        ("/liger autopatch minstral", "`/liger autopatch ministral`"),
        ("/liger autopatch llama", "already patches `llama`"),
        (
            '/liger autopatch\n```json\n{"auto_map": {"AutoModelForCausalLM": "m.M"}, "model_type": "mine"}\n```',
            "remote code",
        ),
    ],
)
def test_a_model_that_can_not_be_patched_says_why_and_what_to_do(here: Scene, comment: str, answer: str):
    issue = here.open_issue()
    here.comment(issue, comment)
    status = here.wait_for_comment(issue, answer, 120)
    assert "can't be patched" in status["body"]
