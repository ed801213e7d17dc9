"""`python -I -m runners.dispatched --candidate DIR --out FILE`: one job out of a workflow's inputs, one report as a file.

The inputs come through the environment: LIGER_BOT_JOB (packed), LIGER_BOT_NONCE, LIGER_BOT_SHA. `-I` keeps the folder it
is started in, and with it the candidate, off the import path.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from runners.confinement import REQUIRED, best_method
from runners.envelope import DispatchedReport, EnvelopeError, unpack
from runners.jobs import run_job
from runners.protocol import Progress
from runners.sandbox import remove_abandoned_scratch

INPUTS = ("LIGER_BOT_JOB", "LIGER_BOT_NONCE", "LIGER_BOT_SHA")


class NotThisJobError(Exception):
    """What was dispatched and what is here don't fit together; the message says how."""


def checked_out(candidate: Path) -> str:
    """The commit that a checkout stands at. Raises NotThisJobError when its HEAD isn't a plain commit."""
    try:
        return (candidate / ".git" / "HEAD").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise NotThisJobError(f"{candidate} is not a git checkout") from None


def run(candidate: Path, packed: str, nonce: str, sha: str, target_python: Path) -> DispatchedReport:
    """Run the job on the candidate. Raises EnvelopeError or NotThisJobError."""
    here = checked_out(candidate)
    if here != sha:
        raise NotThisJobError(f"the checkout stands at {here[:60]}, the job is about {sha[:60]}")
    if best_method() == "limits":
        raise NotThisJobError("this machine can't keep a candidate off the network: install bubblewrap")
    job = unpack(packed, candidate)
    if job.nonce != nonce:
        raise NotThisJobError("the job carries another nonce than its dispatch")
    remove_abandoned_scratch()
    return DispatchedReport(nonce=nonce, sha=here, report=run_job(job, _show, target_python))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -I -m runners.dispatched", description=__doc__)
    parser.add_argument(
        "--candidate", type=Path, required=True, help="the checkout of the candidate's commit"
    )
    parser.add_argument("--out", type=Path, required=True, help="where the report is written")
    arguments = parser.parse_args()
    # taken out of the environment: nothing that is started from here needs them
    packed, nonce, sha = (os.environ.pop(name, "") for name in INPUTS)
    os.environ[REQUIRED] = "1"  # a GPU in the sandbox may leave less of it than this machine has without one
    target_python = Path(os.environ.get("LIGER_BOT_TARGET_PYTHON") or sys.executable)
    try:
        report = run(arguments.candidate.resolve(), packed, nonce, sha, target_python)
    except (EnvelopeError, NotThisJobError) as error:
        print(f"::error::{error}", file=sys.stderr)  # noqa: T201 - shown on the run's page
        return 2
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(report.model_dump_json(), encoding="utf-8")
    return 0


def _show(progress: Progress) -> None:
    print(f"{progress.done} of {progress.total or '?'}: {progress.note}", flush=True)  # noqa: T201 - the run's log


if __name__ == "__main__":
    sys.exit(main())
