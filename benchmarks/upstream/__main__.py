"""Runs the target's unit tests with the derived kernels behind its Functions, and stores what passed.

    python -m benchmarks.upstream --repo CHECKOUT --json benchmarks/results/upstream/cpu.json [--ops softmax,dyt]
    python -m benchmarks.upstream --repo CHECKOUT --device cuda --json benchmarks/results/upstream/h200.json

Tests that fail run once more with the target's own kernels, which tells whose failure it is. On a machine that has a
GPU but not our requirements, in two steps: `--prepare DIR` writes the overlay (DIR/run_upstream.py needs torch, triton,
pytest and transformers), and `--records DIR --no-run` reads what it left.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.upstream.adapters import ADAPTERS
from benchmarks.upstream.notes import DESELECTED, NOTES, REMARKS
from benchmarks.upstream.overlay import write_overlay
from benchmarks.upstream.references import variants
from benchmarks.upstream.table import KINDS, failing, summary
from runners.sandbox import Child, Limits, run_confined, scratch_folder, site_packages

OWN = Path(__file__).resolve().parent
MEMORY_BYTES = 24 * 1024**3
SAID = ("tests", *KINDS, "seconds", "failures", "not_ours_because", "ended")


def run_tests(
    overlay: Path, tests: list[str], records: Path, options: argparse.Namespace, *, baseline: bool = False
) -> None:
    """Run tests confined; the plugin appends to `records`, and so does this when the process was stopped or fell."""
    gpu = options.device == "cuda"
    python = Path(sys.executable)
    ended = run_confined(
        Child(
            script=overlay / "run_tests.py",
            arguments=[
                "-" if gpu else str(overlay / "interpreter.py"),
                *("-p", "liger_kernel.derived.plugin", "-p", "no:cacheprovider", "-q", "--tb=short", *tests),
            ],
            cwd=overlay,
            python=python,
            limits=Limits(deadline_s=options.op_s, memory_bytes=MEMORY_BYTES),
            import_path=[overlay / "src", overlay, *options.extra_path, *site_packages(python)],
            writable=[overlay, records.parent],
            environment={
                "UPSTREAM_RECORDS": str(records),
                "UPSTREAM_TEST_S": str(options.test_s),
                "UPSTREAM_BASELINE": "1" if baseline else "0",
                "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
                "OMP_NUM_THREADS": "1",
                **({} if gpu else {"TRITON_INTERPRET": "1"}),
            },
            gpu=gpu,
        )
    )
    records.with_suffix(".log").write_text(ended.output, encoding="utf-8")
    # pytest's exit codes 0 and 1 are about the tests, which the records tell
    if ended.returncode not in (0, 1):
        errors = [line[1:].strip() for line in ended.output.splitlines() if line.startswith("E ")]
        why = ended.why if ended.timed_out or not errors else errors[-1]
        with records.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"ended": why}) + "\n")


def pytest_arguments(op: str) -> list[str]:
    """The op's test file and what is left out of it."""
    test = ADAPTERS[op].test
    return [test, *(f"--deselect={test}::{start}" for start in DESELECTED.get(op, {}))]


def run(checkout: Path, ops: list[str], folder: Path, options: argparse.Namespace) -> None:
    """Run the ops' tests and leave OP.jsonl, and OP.baseline.jsonl where tests failed, in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with scratch_folder() as scratch:
        own = scratch / "records"
        own.mkdir()
        for op in ops:
            overlay = write_overlay(checkout, scratch / op, variants(), [op])
            if overlay.unsupported:
                print(f"{op}: Unsupported: {dict(overlay.unsupported)}", flush=True)
            found, baseline = own / f"{op}.jsonl", own / f"{op}.baseline.jsonl"
            run_tests(overlay.root, pytest_arguments(op), found, options)
            if again := failing(read_records(found)):
                run_tests(overlay.root, again, baseline, options, baseline=True)
            for left in own.glob(f"{op}.*"):
                shutil.copy(left, folder / left.name)
            counts = summarised(op, folder)
            print(json.dumps({op: {key: counts[key] for key in SAID}}, indent=1), flush=True)


def read_records(path: Path) -> list[dict[str, Any]]:
    """The JSON lines of a file; none when there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def summarised(op: str, folder: Path) -> dict[str, Any]:
    records, baseline = (read_records(folder / f"{op}{kind}.jsonl") for kind in ("", ".baseline"))
    return summary(records, baseline, NOTES.get(op, {}), DESELECTED.get(op, {}), REMARKS.get(op, ""))


def store(path: Path, new: dict[str, Any]) -> None:
    """Write `new`, keeping the ops of an earlier result of the same commit that it has none of."""
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"ops": {}}
    kept = old["ops"] if old.get("liger_commit") == new["liger_commit"] else {}
    ops = {**kept, **new["ops"]}
    path.parent.mkdir(parents=True, exist_ok=True)
    ordered = {**new, "ops": {op: ops[op] for op in ADAPTERS if op in ops}}
    path.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def commit_of(checkout: Path) -> str:
    """The checkout's commit; "unknown" where it is no git repository."""
    asked = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or "unknown"


def parsed() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--repo", type=Path, required=True, help="a Liger-Kernel checkout")
    add("--ops", default=",".join(ADAPTERS), help="separated by commas; default: all")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--json", type=Path, help="where the result goes; ops that are not run now stay in it")
    add("--test-s", type=float, default=30, help="seconds a test may take")
    add("--op-s", type=float, default=300, help="seconds the tests of one op may take")
    add("--extra-path", type=Path, action="append", default=[], help="packages that go before the installed")
    add("--prepare", type=Path, help="write the overlay there and stop")
    add("--records", type=Path, help="where the records of each test go")
    add("--no-run", action="store_true", help="read the records that are there")
    options = parser.parse_args()
    ops = options.ops.split(",")
    if unknown := [op for op in ops if op not in ADAPTERS]:
        parser.error(f"no adapter for {', '.join(unknown)}; there are {', '.join(ADAPTERS)}")
    if options.no_run and not options.records:
        parser.error("--no-run needs --records")
    return options, ops


def main() -> None:
    """Write the overlay, run each op's tests, say and store the counts."""
    options, ops = parsed()
    checkout = options.repo.resolve()
    if options.prepare:
        overlay = write_overlay(checkout, options.prepare.resolve(), variants(), ops)
        shutil.copy(OWN / "run_upstream.py", overlay.root / "run_upstream.py")
        (overlay.root / "tests.json").write_text(json.dumps({op: pytest_arguments(op) for op in ops}))
        print(f"{overlay.root} is ready; Unsupported: {dict(overlay.unsupported) or 'none'}")
        return
    with scratch_folder() as scratch:
        folder = options.records or scratch
        if not options.no_run:
            run(checkout, ops, folder, options)
        done = [op for op in ops if (folder / f"{op}.jsonl").exists()]
        environments = [
            record["environment"]
            for op in done
            for record in read_records(folder / f"{op}.jsonl")
            if "environment" in record
        ]
        device = " --device cuda" if options.device == "cuda" else ""
        result = {
            "environment": environments[0] if environments else {},
            "liger_commit": commit_of(checkout),
            "command": f"python -m benchmarks.upstream --repo CHECKOUT{device}",
            "limits": {"test_s": options.test_s, "op_s": options.op_s},
            "ops": {op: summarised(op, folder) for op in done},
        }
    if options.json:
        store(options.json, result)


if __name__ == "__main__":
    main()
