"""What may come back from a runner: one zip with one report, for this dispatch; and how several are joined."""

from __future__ import annotations

import re
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from agents.dev.check_result import CheckResult
from app.actions.artifact import ArtifactError, OversizeError, report_in
from app.actions.faults import WORDS, Fault, conclusion_of
from app.actions.joined import Part, join, matrix
from app.actions.report import ForgedError, OpenNetworkError, read_report
from app.actions.workflow import NotPinnedError, workflow_text
from runners.dispatched import NotThisJobError, run
from runners.envelope import DispatchedReport, EnvelopeError, pack, unpack
from runners.protocol import Gate, Isolation, Job, Outcome, Report, Status, StylePayload, Verdict
from tests.artifacts import zipped

NONCE, SHA = "ab" * 16, "cd" * 20


def sent(around: dict[str, Any] | None = None, **changes: Any) -> bytes:
    fields: dict[str, Any] = {"job_id": "j", "nonce": NONCE, "kind": "style", "status": Status.completed}
    outside = {"nonce": NONCE, "sha": SHA} | (around or {})
    return DispatchedReport(**outside, report=Report(**fields | changes)).model_dump_json().encode()


def read(data: bytes) -> Report:
    return read_report(data, job_id="j", gate="style", nonce=NONCE, sha=SHA)


def test_a_report_is_read():
    assert read(report_in(zipped(sent()))).job_id == "j"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"PK nothing", "not a zip"),
        (zipped(b"{}")[:-30], "not a zip"),
        (zipped(b"{}", "report.json", stat.S_IFREG, ["more.json"]), "holds 2 files"),
        (zipped(b"{}", "../report.json"), "not called report.json"),
        (zipped(b"{}", "/report.json"), "not called report.json"),
        (zipped(b"{}", "report.json/"), "not called report.json"),
        (zipped(b"/etc/passwd", mode=stat.S_IFLNK | 0o777), "is a link"),
        (zipped(b"", mode=stat.S_IFIFO), "is a link or no plain file"),
    ],
)
def test_a_zip_that_is_no_report_is_refused(data: bytes, says: str):
    with pytest.raises(ArtifactError, match=says):
        report_in(data)


def test_a_bomb_is_not_unpacked():
    with pytest.raises(OversizeError):
        report_in(zipped(b"\0" * 40_000_000))


def test_a_bomb_that_lies_about_its_size_is_not_unpacked():
    packed = zipped(b"\0" * 40_000_000)
    real, lie = (40_000_000).to_bytes(4, "little"), (10).to_bytes(4, "little")
    with pytest.raises(ArtifactError):
        report_in(packed.replace(real, lie))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (sent(nonce="0" * 32), "another dispatch's nonce"),
        (sent({"nonce": "0" * 32}), "another dispatch's nonce"),
        (sent({"sha": "0" * 40}), "another commit"),
        (sent(job_id="k"), "about another job"),
        (sent(kind="benchmark"), "about another job"),
        (sent(version=99), "version 99"),
        (
            sent(verdicts=[Verdict(check="c", gate=Gate.compile, outcome=Outcome.passed, summary="s")]),
            "another gate",
        ),
        (b"[" * 100_000, "not a report"),
        (b"\xff\xfe", "not a report"),
        (sent().replace(b'"elapsed_s":0.0', b'"elapsed_s":NaN'), "not a report"),
        (sent().replace(b'"log_tail"', b'"extra"'), "extra"),
    ],
)
def test_a_report_of_something_else_is_refused(data: bytes, says: str):
    with pytest.raises(ForgedError, match=says):
        read(data)


def test_a_report_from_an_open_sandbox_is_refused():
    with pytest.raises(OpenNetworkError):
        read(sent(isolation=Isolation(method="limits", network=True)))


def style_job(text: str, path: str = "a.py") -> Job:
    payload = StylePayload(checkout="/elsewhere", files={path: text}, products=["é" * 10])
    return Job(id="j", nonce=NONCE, payload=payload)


def test_a_job_travels_without_the_candidates_text(tmp_path: Path):
    (tmp_path / "a.py").write_text("of the commit\n")
    packed = pack(style_job("secret words " * 10))
    got = unpack(packed, tmp_path)
    assert got == style_job("of the commit\n").model_copy(
        update={
            "payload": StylePayload(
                checkout=str(tmp_path), files={"a.py": "of the commit\n"}, products=["é" * 10]
            )
        }
    )


@pytest.mark.parametrize("path", ["../out.py", "/etc/passwd", "link/x.py", "missing.py"])
def test_a_job_reads_no_file_outside_its_commit(tmp_path: Path, path: str):
    (tmp_path / "link").symlink_to("/etc")
    with pytest.raises(EnvelopeError):
        unpack(pack(style_job("", path)), tmp_path)


@pytest.mark.parametrize("packed", ["", "!", "AAAA", pack(style_job("x"))[:-8]])
def test_what_is_no_job_is_refused(tmp_path: Path, packed: str):
    with pytest.raises(EnvelopeError):
        unpack(packed, tmp_path)


def test_a_job_that_a_dispatch_does_not_take_is_refused():
    noise = [str(hash((number, "x"))) for number in range(20_000)]
    job = Job(id="j", nonce=NONCE, payload=StylePayload(checkout=".", files={}, products=noise))
    with pytest.raises(EnvelopeError, match="60,000"):
        pack(job)


def result(conclusion: Any, title: str, text: str = "") -> CheckResult:
    return CheckResult(
        name="liger-bot / style", conclusion=conclusion, title=title, summary="what was found", text=text
    )


def test_the_worst_part_decides_and_none_is_hidden():
    parts = [
        Part("sm_90", ["h100"], "http://run/1", result("success", "3 passed")),
        Part("gfx942", ["mi300"], "http://run/2", result("failure", "NaN")),
        Part("sm_100", ["b200"], fault=Fault.no_runner, detail="it waited"),
    ]
    joined = join(Gate.correctness, parts)
    assert (joined.conclusion, joined.title) == ("failure", "gfx942: NaN")
    for words in (
        "| ✅ | `sm_90` |",
        "| ❌ | `gfx942` |",
        "| ❌ | `sm_100` |",
        "No runner took the job",
        "it waited",
    ):
        assert words in joined.summary


def test_a_long_part_leaves_room_for_the_others():
    parts = [Part(f"sm_{n}", ["x"], result=result("success", "ok", "line\n" * 30_000)) for n in (80, 90)]
    joined = join(Gate.compile, parts)
    assert len(joined.text) <= 65_535


@pytest.mark.parametrize("fault", list(Fault))
def test_nothing_passes_a_gate_without_a_report_but_for_a_benchmark_that_no_one_spoilt(fault: Fault):
    assert WORDS[fault].to_do
    assert {conclusion_of(fault, gate) for gate in Gate if gate is not Gate.benchmark} == {"failure"}
    spoilt = fault in {Fault.forged, Fault.oversize, Fault.open_network}
    assert conclusion_of(fault, Gate.benchmark) == ("failure" if spoilt else "neutral")


def test_a_part_that_waits_is_shown_as_waiting():
    assert "| ⏳ | `sm_90` |" in matrix(Gate.style, [Part("sm_90", ["h100"], waiting="queued")])


@pytest.mark.parametrize(
    "harness",
    [
        "liger-bot",
        "liger-bot==0.1.0",
        "git+https://host/o/liger-bot@main",
        "git+https://host/x@" + "a" * 40 + '"; id',
    ],
)
def test_the_harness_is_named_by_a_commit(harness: str):
    with pytest.raises(NotPinnedError):
        workflow_text(harness)
    assert f"git+https://host/o/liger-bot@{'a' * 40}" in workflow_text(
        f"git+https://host/o/liger-bot@{'a' * 40}"
    )


def test_the_workflow_can_do_little_and_runs_no_text_of_its_inputs():
    text = workflow_text()
    workflow = yaml.safe_load(text)
    assert list(workflow[True]) == ["workflow_dispatch"]  # YAML 1.1 reads the key `on` as true
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets." not in text
    (job,) = workflow["jobs"].values()
    assert job["timeout-minutes"] <= 60
    for step in job["steps"]:
        assert "${{" not in step.get("run", ""), "an input would be read as shell"
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step.get("uses", "actions/none@" + "0" * 40))
    assert len(workflow[True]["workflow_dispatch"]["inputs"]) <= 10  # what older Enterprise servers take


@pytest.fixture
def candidate(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text(f"{SHA}\n")
    (tmp_path / "a.py").write_text("x = 1\n")
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sha": "0" * 40}, "the checkout stands at"),
        ({"nonce": "0" * 32}, "another nonce"),
        ({"packed": "AAAA"}, "not a packed job"),
    ],
)
def test_the_harness_runs_only_the_job_that_fits_the_checkout(
    candidate: Path, changes: dict[str, str], says: str
):
    given = {"packed": pack(style_job("", "a.py")), "nonce": NONCE, "sha": SHA} | changes
    with pytest.raises((NotThisJobError, EnvelopeError), match=says):
        run(candidate, given["packed"], given["nonce"], given["sha"], Path(sys.executable))


def test_the_harness_refuses_a_machine_that_can_not_keep_a_candidate_off_the_network(
    candidate: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("runners.dispatched.best_method", lambda: "limits")
    with pytest.raises(NotThisJobError, match="install bubblewrap"):
        run(candidate, pack(style_job("", "a.py")), NONCE, SHA, Path(sys.executable))
