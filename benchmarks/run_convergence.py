"""Runs prepared convergence tests on a GPU machine: python3 run_convergence.py FOLDER OUT_FOLDER SECONDS_IN_ALL.

Copied beside what `benchmarks.autopatch_convergence --prepare` wrote; standard library only. Trusts the machine to be a
throw-away one: nothing is confined here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copytree
from typing import Any

SIDE_BY_SIDE = 6  # a test's time is mostly imports, compiling and launches, on the host; 14 on 16 cores: thrice as long each
FILES = [
    "test/convergence/fp32/test_mini_models.py",
    "test/convergence/fp32/test_mini_models_with_logits.py",
    "test/convergence/bf16/test_mini_models.py",
    "test/convergence/bf16/test_mini_models_with_logits.py",
    "test/transformers/test_monkey_patch.py",
]


def run_model(model: str, folder: Path, base: Path, out: Path, ends: float) -> str:
    """One model's tests; leaves OUT/models/MODEL.json and a log. Returns pytest's last line."""
    left = ends - time.monotonic()
    if left < 20:
        return "no time left"
    tree = Path(tempfile.mkdtemp(prefix=f"{model}-"))
    copytree(base, tree, dirs_exist_ok=True)
    copytree(folder / "models" / model, tree, dirs_exist_ok=True)
    report = tree / "junit.xml"
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}:{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:benchmark", "-p", "no:cacheprovider"]
    name = model.replace("-", "_")
    command += [f"--junitxml={report}", "-k", f"mini_{name}- or instance_for_{name}", "-rA", *FILES]
    try:
        ended = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=left, check=False
        )
        text = ended.stdout + ended.stderr
    except subprocess.TimeoutExpired as error:
        text = f"{(error.stdout or b'').decode(errors='replace')}\nstopped after {left:.0f} s"
    (out / "logs").mkdir(parents=True, exist_ok=True)
    (out / "logs" / f"{model}.log").write_text(text[-20000:])
    (out / "models").mkdir(parents=True, exist_ok=True)
    # -k also takes models whose names begin with this one's
    own = re.compile(rf"mini_{re.escape(name)}(?![a-z0-9_])|_for_{re.escape(name)}$")
    tests = [test for test in (read(report) if report.exists() else []) if own.search(test["test"])]
    (out / "models" / f"{model}.json").write_text(json.dumps(tests))
    return text.strip().splitlines()[-1] if text.strip() else "no output"


def read(report: Path) -> list[dict[str, Any]]:
    """The tests of one junit file."""
    tests = []
    for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 - written by our own pytest
        children = {child.tag: child for child in case}
        bad = next((children[tag] for tag in ("failure", "error", "skipped") if tag in children), None)
        outcome = (
            {"failure": "failed", "error": "failed", "skipped": "skipped"}[bad.tag]
            if bad is not None
            else "passed"
        )
        message = "" if bad is None else (bad.get("message") or "")[:400]
        name = f"{(case.get('classname') or '').replace('.', '/')}.py::{case.get('name')}"
        tests.append(
            {
                "test": name,
                "outcome": outcome,
                "seconds": round(float(case.get("time") or 0), 1),
                "message": message,
            }
        )
    return tests


def environment() -> dict[str, str]:
    """GPU, driver and versions."""
    import torch
    import transformers
    import triton

    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none",
        "driver": driver,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "transformers": transformers.__version__,
        "command": "python3 run_convergence.py FOLDER OUT_FOLDER SECONDS",
    }


def main() -> None:
    """Unpack the checkout once, then every model, several at a time."""
    folder, out, seconds = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
    ends = time.monotonic() + seconds
    out.mkdir(parents=True, exist_ok=True)
    base = Path(tempfile.mkdtemp(prefix="base-"))
    with tarfile.open(folder / "base.tar.gz") as tar:
        tar.extractall(base, filter="data")
    (out / "environment.json").write_text(json.dumps(environment()))
    models = sorted(path.name for path in (folder / "models").iterdir())
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for model, last in zip(
            models, pool.map(lambda one: run_model(one, folder, base, out, ends), models), strict=True
        ):
            print(f"{model}: {last}", flush=True)


if __name__ == "__main__":
    main()
