"""The local bench against runner processes: a well-behaved one, and ones that misbehave."""

from __future__ import annotations

import asyncio
import stat
import sys
import time
from pathlib import Path

import pytest

from app.dispatch import BenchError, LocalBench
from runners.protocol import AnalyzePayload, Job, OpSpec, Progress, Status

HEAD = f"#!{sys.executable}\nimport json, os, sys, time, subprocess\njob = json.load(sys.stdin)\n"
REPORT = 'report = {"job_id": job["id"], "nonce": job["nonce"], "kind": "analyze", "status": "completed"}\n'


def job(deadline_s: float = 20.0) -> Job:
    return Job(
        id="job-1",
        nonce="n" * 32,
        deadline_s=deadline_s,
        payload=AnalyzePayload(op=OpSpec(name="a", entry="a", source="")),
    )


@pytest.fixture
def runner(tmp_path: Path):
    """Makes an executable that stands where the runner's interpreter would."""

    def make(body: str) -> str:
        path = tmp_path / "python"
        path.write_text(HEAD + body)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return make


async def test_a_report_comes_back_with_its_progress(runner):
    body = 'print("progress " + json.dumps({"job_id": "job-1", "done": 1, "total": 2, "note": "half"}), file=sys.stderr)\n'
    seen: list[Progress] = []

    async def tell(progress: Progress) -> None:
        seen.append(progress)

    report = await LocalBench(runner(body + REPORT + "print(json.dumps(report))")).run(job(), tell)
    assert report.status is Status.completed
    assert [(one.done, one.total, one.note) for one in seen] == [(1, 2, "half")]


async def test_the_runner_sees_no_secret_of_ours(runner, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LIGER_BOT_WEBHOOK_SECRET", "s3cret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    body = REPORT + 'report["log_tail"] = json.dumps(dict(os.environ))\nprint(json.dumps(report))'
    report = await LocalBench(runner(body)).run(job())
    assert "s3cret" not in report.log_tail
    assert "PATH" in report.log_tail


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("print('not json')", "no valid report"),
        ("sys.exit(3)", "code 3"),
        (REPORT + 'report["nonce"] = "guessed"\nprint(json.dumps(report))', "not for this job"),
        (REPORT + 'report["job_id"] = "other"\nprint(json.dumps(report))', "not for this job"),
        (REPORT + 'report["extra"] = 1\nprint(json.dumps(report))', "no valid report"),
        ("os.kill(os.getpid(), 9)", "code -9"),
        ("print('{' * 200_000)", "no valid report"),
    ],
)
async def test_what_is_not_this_jobs_report_is_our_fault_and_data(runner, body: str, why: str):
    report = await LocalBench(runner(body)).run(job())
    assert report.status is Status.error
    assert why in report.log_tail


@pytest.mark.parametrize("half", ["", '{\\"job_id\\": '], ids=["before it wrote", "while it wrote"])
async def test_a_runner_that_someone_kills_is_started_again(runner, tmp_path: Path, half: str):
    mark = str(tmp_path / "killed")
    body = f'if not os.path.exists({mark!r}):\n    open({mark!r}, "w").close()\n    print("{half}", end="", flush=True)\n    os.kill(os.getpid(), 9)\n'
    report = await LocalBench(runner(body + REPORT + "print(json.dumps(report))")).run(job())
    assert report.status is Status.completed


async def test_the_runners_last_words_are_kept(runner):
    report = await LocalBench(runner("print('Traceback: boom', file=sys.stderr)\nsys.exit(1)")).run(job())
    assert "Traceback: boom" in report.log_tail


async def test_garbage_on_standard_error_is_survived(runner):
    noise = "sys.stderr.write('x' * 3_000_000 + chr(10))\nprint('progress not json', file=sys.stderr)\nsys.stderr.flush()\n"
    report = await LocalBench(runner(noise + REPORT + "print(json.dumps(report))")).run(job())
    assert report.status is Status.completed


async def test_a_runner_that_does_not_end_is_killed_with_its_children(
    runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("app.dispatch.GRACE_S", 0.5)
    child = f'child = subprocess.Popen(["sleep", "60"])\nopen({str(tmp_path / "pid")!r}, "w").write(str(child.pid))\ntime.sleep(60)\n'
    report = await LocalBench(runner(child)).run(job(deadline_s=1.0))
    assert report.status is Status.timeout
    await _gone(int((tmp_path / "pid").read_text()))


async def test_cancelling_kills_the_runner(runner, tmp_path: Path):
    task = asyncio.create_task(
        LocalBench(
            runner(f'open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))\ntime.sleep(60)')
        ).run(job())
    )
    for _ in range(200):
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
            break
        await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _gone(int((tmp_path / "pid").read_text()))


async def test_slots_bound_how_many_run_at_once(runner):
    bench = LocalBench(runner("time.sleep(0.5)\n" + REPORT + "print(json.dumps(report))"), slots=1)
    started = time.perf_counter()
    await asyncio.gather(bench.run(job()), bench.run(job()))
    assert time.perf_counter() - started >= 1.0


async def test_no_interpreter_is_said_plainly():
    with pytest.raises(BenchError, match="can't start /nowhere/python"):
        await LocalBench("/nowhere/python").run(job())


def _alive(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"


async def _gone(pid: int) -> None:
    for _ in range(100):
        if not _alive(pid):
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"process {pid} is still there")
