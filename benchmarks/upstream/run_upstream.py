"""Runs a prepared overlay's tests on a GPU machine: python3 run_upstream.py RECORDS_FOLDER SECONDS_IN_ALL [OP …].

Copied beside the overlay; standard library only. Trusts the machine to be a throw-away one: nothing is confined here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent
TEST_S = 40
SIDE_BY_SIDE = 6  # most of a test file's time is imports and compiling, on the host


def run_op(op: str, tests: list[str], folder: Path, ends: float) -> str:
    """One op's tests, then those that failed with the target's own kernels. Returns pytest's last line."""
    last = run_tests(tests, folder / f"{op}.jsonl", ends, "0")
    records = folder / f"{op}.jsonl"
    lines = records.read_text().splitlines() if records.exists() else []
    failed = [
        one["test"] for one in map(json.loads, lines) if one.get("outcome") == "failed" and one["calls"]
    ]
    if failed:
        last += "; itself: " + run_tests(failed, folder / f"{op}.baseline.jsonl", ends, "1")
    return last


def run_tests(tests: list[str], records: Path, ends: float, baseline: str) -> str:
    """Run pytest until `ends` at the latest; leaves the records and a log beside them. Returns its last line."""
    left = ends - time.monotonic()
    if left < 5:
        return "no time left"
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "UPSTREAM_RECORDS": str(records),
        "UPSTREAM_TEST_S": str(TEST_S),
        "UPSTREAM_BASELINE": baseline,
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }
    arguments = ["-p", "liger_kernel.derived.plugin", "-p", "no:cacheprovider", "-q", "--tb=short", *tests]
    why = ""
    try:
        ended = subprocess.run(
            [sys.executable, "-P", str(ROOT / "run_tests.py"), "-", *arguments],
            cwd=ROOT,
            env=environment,
            timeout=left,
            capture_output=True,
            text=True,
            check=False,
        )
        output = ended.stdout + ended.stderr
        if ended.returncode not in (0, 1):
            errors = [line[1:].strip() for line in output.splitlines() if line.startswith("E ")]
            why = errors[-1] if errors else f"exit code {ended.returncode}"
    except subprocess.TimeoutExpired as stopped:
        output = (stopped.stdout or b"").decode(errors="replace")
        why = f"stopped after {left:.0f} s"
    records.with_suffix(".log").write_text(output[-200_000:])
    if why:
        with records.open("a") as file:
            file.write(json.dumps({"ended": why}) + "\n")
    return why or (output.strip().splitlines() or ["no output"])[-1]


def main() -> None:
    """Run the ops side by side and print how each ended."""
    folder, seconds, *ops = sys.argv[1:]
    tests = json.loads((ROOT / "tests.json").read_text())
    started = time.monotonic()
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        running = {
            op: pool.submit(run_op, op, tests[op], Path(folder), started + float(seconds))
            for op in ops or tests
        }
        for op, last in running.items():
            print(f"{op}: {last.result()} ({time.monotonic() - started:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
