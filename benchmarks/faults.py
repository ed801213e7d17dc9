"""kill -9 of the service, its workers, the database and runners at random moments of many requests, and what came of it.

    python -m benchmarks.faults --requests 200 --store sqlite|postgres [--seed 1] [--json FILE]

Of 200 requests 3 go from comment to verified draft pull request (GPU runners are played: they answer at once), 4 are
refused by a runner process that traces their reference, and 193 are answered at once (help, status, mistakes,
refusals). Exit code 1 when a request was lost, or anything was made twice.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.chaos import Chaos, Sent, chaos_scene, plan

# From the moment that the service is up to the next kill; one in four doesn't wait for it.
PAUSE_S = (0.5, 6.0)
RESULTS = Path(__file__).parent / "results" / "service"


def main() -> int:
    """Run, print, and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--json", type=Path, help="write the result here; default: benchmarks/results/service"
    )
    options = parser.parse_args()
    whole, analysed = max(1, options.requests * 3 // 200), options.requests * 4 // 200
    load_before = os.getloadavg()
    with (
        tempfile.TemporaryDirectory() as folder,
        chaos_scene(Path(folder), options.store) as (here, postgres),
    ):
        chaos = Chaos(here, postgres, options.seed, pause_s=PAUSE_S)
        kinds = plan(options.requests, whole, analysed)
        result = chaos.run(kinds, every_s=0.4, kills=options.requests // 16, patience_s=300)
    load_after = os.getloadavg()
    kinds_sent = Counter(one.kind for one in result.sent)
    text = json.dumps(
        {
            "environment": environment(options.store, load_before, load_after),
            "seed": options.seed,
            "requests": dict(kinds_sent.most_common()),
            "kills": dict(result.kills.most_common()),
            "wall_s": result.wall_s,
            "answered_s": {kind: spread(result.sent, kind) for kind in kinds_sent},
            "settled": sum(one.settled_at is not None for one in result.sent),
            "wrong": result.wrong,
        },
        indent=2,
    )
    print(text)
    target = options.json or RESULTS / f"faults-{options.store}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text + "\n", encoding="utf-8")
    return 1 if result.wrong else 0


def spread(sent: list[Sent], kind: str) -> dict[str, float]:
    """Median and maximum of seconds to the answer, restarts included."""
    times = [one.took_s for one in sent if one.kind == kind and one.took_s is not None]
    return {"p50": round(statistics.median(times), 2), "max": round(max(times), 2)} if times else {}


def environment(store: str, *loads: tuple[float, float, float]) -> dict[str, Any]:
    """Where it ran. load: of the whole machine, which others may have used too."""
    git = ["git", "rev-parse", "--short=12", "HEAD"]
    return {
        "cpu_count": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "store": "SQLite (WAL)" if store == "sqlite" else "Postgres 18",
        "commit": subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip(),
        "load_1min_before_and_after": [round(load[0], 2) for load in loads],
        "command": f"python -m {Path(sys.argv[0]).parent.name}.{Path(sys.argv[0]).stem} {' '.join(sys.argv[1:])}",
    }


if __name__ == "__main__":
    sys.exit(main())
