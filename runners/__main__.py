"""`python -m runners [JOB.json]`: one job in (a file, or standard input), one report out, progress on standard error."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from pydantic import ValidationError

from runners.confinement import REQUIRED
from runners.environment import current_environment
from runners.jobs import run_job
from runners.model_checks.versions import SITES
from runners.protocol import Job, Progress
from runners.sandbox import remove_abandoned_scratch


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m runners", description="Run one job and print its report."
    )
    parser.add_argument("job", nargs="?", help="a file with the job as JSON; standard input when left out")
    parser.add_argument("--out", type=Path, help="write the report here instead of to standard output")
    parser.add_argument(
        "--target-python",
        type=Path,
        default=Path(os.environ.get("LIGER_BOT_TARGET_PYTHON", sys.executable)),
        help="interpreter with the target repository's dependencies",
    )
    parser.add_argument(
        "--transformers-sites",
        default=os.environ.get(SITES, ""),
        help="folders with other versions of transformers, under which a model patch is imported",
    )
    parser.add_argument(
        "--require-confinement",
        action="store_true",
        help="run nothing where limits alone could be put around it",
    )
    parser.add_argument("--environment", action="store_true", help="print this runner's environment and exit")
    arguments = parser.parse_args()
    if arguments.environment:
        print(current_environment().model_dump_json(indent=2))  # noqa: T201 - the answer
        return 0
    try:
        job = Job.model_validate_json(Path(arguments.job).read_text() if arguments.job else sys.stdin.read())
    except (ValidationError, OSError, ValueError) as error:
        print(f"not a job: {_first_line(error)}", file=sys.stderr)  # noqa: T201
        return 2
    remove_abandoned_scratch()
    os.environ[SITES] = arguments.transformers_sites
    if arguments.require_confinement:
        os.environ[REQUIRED] = "1"
    report = run_job(job, _print_progress, arguments.target_python).model_dump_json()
    if arguments.out:
        arguments.out.write_text(report)
    else:
        print(report)  # noqa: T201 - the answer
    return 0


def _print_progress(progress: Progress) -> None:
    print(f"progress {progress.model_dump_json()}", file=sys.stderr, flush=True)  # noqa: T201 - the peer reads it


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'the document'}: {first['msg']}"
    return str(error).splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
