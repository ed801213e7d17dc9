"""Where limits alone could be put around a job: the service runs none, unless it is told to, and says what to do."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from agents.dev.verify import judge
from app.confinement import confinement, say_confinement
from app.dispatch import LocalBench
from app.main import open_ports
from app.settings import Settings
from runners.confinement import UnconfinedError, required_method
from runners.protocol import AnalyzePayload, Gate, Isolation, Job, OpSpec, Report, Status

SOURCE = "def f(x):\n    return x * x\n"


@pytest.fixture
def without_sandbox(tmp_path: Path) -> str:
    """An interpreter of a machine that allows neither bubblewrap nor namespaces."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nLIGER_BOT_CONFINEMENT=limits exec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return str(path)


def a_job(deadline_s: float = 60.0) -> Job:
    op = OpSpec(name="square", entry="f", source=SOURCE)
    return Job(id="job-1", nonce="n" * 32, deadline_s=deadline_s, payload=AnalyzePayload(op=op))


def settings(folder: Path, python: str, **more: object) -> Settings:
    return Settings(
        _env_file=None, webhook_secret="s3cret", app_id=1, private_key="key", data_dir=folder / "data",
        runner_python=python, **more,
    )  # fmt: skip


async def test_the_service_runs_no_job_that_only_limits_confine(tmp_path: Path, without_sandbox: str):
    ports = open_ports(settings(tmp_path, without_sandbox))
    try:
        assert ports.spare_bench is not None
        for bench in (ports.bench, ports.spare_bench):
            report = await bench.run(a_job())
            assert report.status is Status.error
            assert report.isolation is None, "nothing ran"
            assert "install bubblewrap" in report.log_tail
            assert "LIGER_BOT_ALLOW_UNCONFINED" in report.log_tail
            assert "Traceback" not in report.log_tail
        shown = judge(Gate.correctness, report)
        assert shown.conclusion == "action_required"
        assert "install bubblewrap" in shown.text
    finally:
        await ports.github.close()
        ports.store.close()


async def test_a_setting_lets_them_run_and_the_report_says_how(tmp_path: Path, without_sandbox: str):
    ports = open_ports(settings(tmp_path, without_sandbox, allow_unconfined=True))
    try:
        reports = [await bench.run(a_job(0.1)) for bench in (ports.bench, LocalBench(without_sandbox))]
    finally:
        await ports.github.close()
        ports.store.close()
    for report in reports:
        assert report.status is Status.timeout, "it ran until its deadline"
        assert report.isolation is not None
        assert (report.isolation.method, report.isolation.network) == ("limits", True)


@pytest.mark.parametrize(
    ("allowed", "level", "words"),
    [(False, "ERROR", "no job runs here"), (True, "WARNING", "LIGER_BOT_ALLOW_UNCONFINED lets them run")],
)
async def test_the_operator_is_told_when_it_starts(
    tmp_path: Path,
    without_sandbox: str,
    caplog: pytest.LogCaptureFixture,
    allowed: bool,
    level: str,
    words: str,
):
    assert await confinement(without_sandbox) == "limits"
    with caplog.at_level(logging.INFO, "app.confinement"):
        await say_confinement(settings(tmp_path, without_sandbox, allow_unconfined=allowed))
    assert [(one.levelname, words in one.getMessage()) for one in caplog.records] == [(level, True)]
    assert "install bubblewrap" in caplog.text


def test_a_gpu_that_opens_the_sandbox_counts_as_none(monkeypatch: pytest.MonkeyPatch):
    """A machine may have a sandbox in which no GPU works: what runs on the GPU is then not run either."""
    monkeypatch.setattr(
        "runners.confinement.best_method", lambda *, gpu=False: "limits" if gpu else "bubblewrap"
    )
    monkeypatch.setenv("LIGER_BOT_REQUIRE_CONFINEMENT", "1")
    assert required_method() == "bubblewrap"
    with pytest.raises(UnconfinedError, match="with a GPU in it"):
        required_method(gpu=True)


@pytest.mark.parametrize(
    ("isolation", "words"),
    [
        (Isolation(method="bubblewrap", network=False), "confined by bubblewrap, no network"),
        (Isolation(method="namespaces", network=False), "confined by namespaces, no network"),
        (Isolation(method="limits", network=True), "confined by limits, network reachable"),
    ],
)
@pytest.mark.parametrize("gate", list(Gate))
def test_every_check_says_how_its_job_was_confined(gate: Gate, isolation: Isolation, words: str):
    report = Report(job_id="j", nonce="n", kind=gate.value, status=Status.completed, isolation=isolation)
    assert words in judge(gate, report).summary
