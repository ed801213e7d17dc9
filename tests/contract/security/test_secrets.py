"""A whole request with secrets that can be recognised: none of them is in anything that was written, sent to people or answered.

Looked at: the service's log, every file below its data folder (databases, git mirrors, checkouts), comments, reviews, check
runs, the branch, the pages, the metrics, what the language model was asked, and what a job and its child could see.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.github import redact
from tests.exhaustive import exhaustive
from tests.liger_checkout import liger_checkout
from tests.openai_server import OpenAIServer, Reply
from tests.service_process import SECRET, Scene, scene

MODEL_KEY, METRICS_TOKEN = "sk-recognisable-key-4711", "recognisable-metrics-token"
CLIENT_SECRET, PASSING_BY = "recognisable-client-secret", "recognisable-cloud-credential"
GITHUB_TOKEN = re.compile(
    r"\b(gh[a-z]_[A-Za-z0-9_]{16,}|github_pat_[A-Za-z0-9_]{16,}|eyJ[A-Za-z0-9_-]{20,}\.)"
)
# A target repository that looks around in every test run, and puts what it finds where people and the service read it.
HOSTILE_CONFTEST = """
import glob, os, pathlib
found = [repr(sorted(os.environ.items()))]
for path in (*glob.glob("/proc/[0-9]*/environ"), "LOG", "DATABASE", *glob.glob("DATA/**", recursive=True)):
    try:
        found.append(pathlib.Path(path).read_bytes().decode("utf-8", "replace"))
    except OSError:
        pass
raise RuntimeError("LOOKED AROUND " + " ".join(found)[-6000:])
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scene, OpenAIServer, Path]]:
    """A request that went from comment to verified pull request, one that asked the model, and a refused one."""
    folder = tmp_path_factory.mktemp("secrets")
    files = liger_checkout(folder / "files")
    conftest = HOSTILE_CONFTEST.replace("DATA", str(folder / "data")).replace(
        "LOG", str(folder / "service.log")
    )
    (files / "test" / "conftest.py").write_text(conftest)
    refusal = Reply(status=400, error=f"your key {MODEL_KEY} is known to me")
    with pytest.MonkeyPatch.context() as patch, OpenAIServer([refusal] * 20).running() as server:
        patch.setenv("AWS_SECRET_ACCESS_KEY", PASSING_BY)
        secrets: dict[str, Any] = {
            "MODEL": "local/model", "MODEL_BASE_URL": server.base_url, "MODEL_API_KEY": MODEL_KEY,
            "METRICS_TOKEN": METRICS_TOKEN, "CLIENT_ID": "Iv1.test", "CLIENT_SECRET": CLIENT_SECRET, "LOG_LEVEL": "DEBUG",
        }  # fmt: skip
        with scene(folder, files, **secrets) as here:
            issue = here.open_issue()
            here.comment(issue, "/liger dev relu2")
            shown = here.wait_for_comment(issue, "waiting for your decision")
            asked = here.open_issue("asks the model")
            here.comment(asked, "/liger dev a kernel that is nicer to its cache than anything before it")
            here.comment(
                asked, "/liger dev\n```python\nimport os\n\ndef f(x):\n    return os.environ\n```", "second"
            )
            here.react(shown["id"])
            here.wait_for_comment(asked, "The language model could not be used", 180)
            here.wait_for_comment(issue, "ready for review", 240)
            yield here, server, folder


def spellings(secret: str) -> list[bytes]:
    """A secret as it stands, and in the two disguises in which headers and inputs carry text."""
    plain = secret.encode()
    # base64 of text at any offset holds one of these
    shifted = [base64.b64encode(b"\0" * shift + plain)[4:-4] for shift in range(3)]
    return [plain, *shifted, plain.hex().encode()]


def recognised(data: bytes, secrets: dict[str, str]) -> list[str]:
    """The names of secrets that are in some bytes."""
    named = [name for name, secret in secrets.items() if any(one in data for one in spellings(secret))]
    token = GITHUB_TOKEN.search(data.decode("utf-8", "replace"))
    return named + ([f"a token: {token[0][:12]}"] if token else [])


def known(here: Scene) -> dict[str, str]:
    key = here.service.environment["LIGER_BOT_PRIVATE_KEY"]
    return {
        "the webhook's secret": SECRET, "the model's key": MODEL_KEY, "the metrics' token": METRICS_TOKEN,
        "the client's secret": CLIENT_SECRET, "a credential of the machine": PASSING_BY,
        "the private key": key.splitlines()[len(key.splitlines()) // 2], "a key's head": "PRIVATE KEY-----",
    }  # fmt: skip


@exhaustive
@pytest.mark.slow
@pytest.mark.timeout(600)  # with the fixture, a whole request in the interpreter
def test_no_secret_is_in_anything_that_was_written(finished: tuple[Scene, OpenAIServer, Path]):
    here, server, folder = finished
    secrets, written = known(here), dict[str, bytes]()
    for path in [here.service.log, *(folder / "data").rglob("*")]:
        if path.is_file() and not path.is_symlink():
            written[str(path.relative_to(folder))] = path.read_bytes()
    assert {"data/liger-bot.sqlite", "data/workflows.sqlite"} <= set(written)
    assert b"LOOKED AROUND" in b"".join(written.values()), (
        "the hostile repository was run, and its words were kept"
    )

    (pull,) = here.call("GET", "/pulls")
    answers: dict[str, Any] = {
        "comments": here.call("GET", "/issues/comments", params={"per_page": 100}),
        "pull request": pull,
        "files": here.call("GET", f"/pulls/{pull['number']}/files"),
        "commits": here.call("GET", f"/pulls/{pull['number']}/commits"),
        "checks": here.check_runs(pull["head"]["sha"]),
        "what the model was asked": [body for _, body in server.requests],
    }
    assert len(answers["checks"]) == 4
    assert server.requests[0][0]["authorization"] == f"Bearer {MODEL_KEY}", (
        "the key was used where it belongs"
    )
    written |= {name: repr(answer).encode() for name, answer in answers.items()}

    identifier = pull["head"]["ref"].rsplit("-", 1)[-1]
    tabs = [f"/requests/{identifier}{tab}" for tab in ("", "/profile", "/diff", "/reports")]
    for path in ("/requests", "/healthz", "/readyz", "/metrics", *tabs):
        answer = httpx.get(f"{here.service.url}{path}", timeout=60)
        assert answer.status_code == (401 if path == "/metrics" else 200)
        written[path] = answer.content + repr(answer.headers).encode()
    headers = {"Authorization": f"Bearer {METRICS_TOKEN}"}
    written["metrics"] = httpx.get(f"{here.service.url}/metrics", headers=headers).content
    login = httpx.get(f"{here.service.url}/login")
    written["sign-in"] = login.content + repr(login.headers).encode()

    found = {name: seen for name, data in written.items() if (seen := recognised(data, secrets))}
    assert found == {}


@exhaustive
@pytest.mark.slow
def test_the_command_line_of_no_process_holds_a_secret(finished: tuple[Scene, OpenAIServer, Path]):
    """Anybody on the machine can read those, also of git and of a runner while they run; what was kept is in the log."""
    here, _, _ = finished
    assert here.service.process is not None
    line = Path(f"/proc/{here.service.process.pid}/cmdline").read_bytes()
    assert recognised(line, known(here)) == []


def test_a_secret_would_be_found():
    secrets = {"one": "recognisable-value"}
    for data in (
        b"... recognisable-value ...",
        base64.b64encode(b"x-access-token:recognisable-value"),
        base64.b64encode(b"{'a': 'recognisable-value'}"),
        b"recognisable-value".hex().encode(),
    ):
        assert recognised(data, secrets) == ["one"]
    assert recognised(b"Authorization: bearer ghs_abcdefABCDEF0123", {}) == ["a token: ghs_abcdefAB"]
    assert recognised(b"nothing to see", secrets) == []


def test_words_that_end_like_a_token_begins_are_left_alone():
    assert redact("weight_scale, eyJ_of_keyJ, height_max") == "weight_scale, [redacted], height_max"
    assert (
        redact("https://x:ghs_abc@host (ghp_abc) =gho_abc")
        == "https://x:[redacted]@host ([redacted]) =[redacted]"
    )
