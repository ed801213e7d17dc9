"""Writes docs/performance.md and its plot from the stored results: no number in it was typed by hand.

python -m benchmarks.report
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.kernel_report import few_rows, kernels, plot, table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "performance.md"
PLOT = ROOT / "docs" / "images" / "roofline.png"


def main() -> None:
    """Read, write, and say what was written."""
    gpu = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((RESULTS / "h200").glob("*.json"))]
    records = [record for result in gpu for record in result["records"]]
    service = [text(one) for kind, text in SERVICE for one in _stored(f"service/{kind}-*.json")]
    parts = [
        "# Performance",
        "Written by `python -m benchmarks.report` from `benchmarks/results/`; every number was measured, and its environment stands beside it.",
    ]
    if service:
        parts += ["## The service", *service]
    if records:
        plot(records, PLOT)
        parts += ["## Kernels on one H200", *kernels(gpu, records, str(PLOT.relative_to(PAGE.parent)))]
    split, blocks = (_stored(f"h200/few_rows/{name}.json") for name in ("split", "blocks"))
    if split and blocks:
        parts += ["## Few rows of millions of columns", *few_rows(split[0], blocks[0])]
    PAGE.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(records)} kernel records, {len(service)} service runs")


def _stored(pattern: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob(pattern))]


def _caption(where: dict[str, Any]) -> str:
    load = " to ".join(map(str, where.get("load_1min_before_and_after", [])))
    return f"{where['cpu_count']} cores, {where['machine']}, Python {where['python']}, {where['store']}, commit `{where['commit']}`{f', load {load}' if load else ''}: `{where['command'].strip()}`"


def _faults(result: dict[str, Any]) -> str:
    kills = ", ".join(f"{count} of a {victim}" for victim, count in result["kills"].items())
    rows = [
        ["requests", f"{sum(result['requests'].values())}, of which {result['requests'].get('whole', 0)} to a verified pull request"],
        ["kill -9", f"{sum(result['kills'].values())}: {kills}"],
        ["answered", str(result["settled"])],
        ["lost, or made twice", str(len(result["wrong"]))],
        ["slowest answer of those that need no work", f"{max(times['max'] for kind, times in result['answered_s'].items() if kind not in ('whole', 'analysed'))} s, restarts included"],
        ["took", f"{result['wall_s']:.0f} s"],
    ]  # fmt: skip
    return f"Killed at random:\n\n{table(['what', 'measured'], rows)}\n\n{_caption(result['environment'])}"


def _approvals(result: dict[str, Any]) -> str:
    rows = [
        ["profiles that wait", f"{result['pending']}, {result['with_a_strangers_reaction']} with a 👍 that doesn't count; read every {result['polled_every_s']:g} s"],
        ["GraphQL queries an hour", f"{result['graphql_queries_an_hour']} of {result['limit_an_hour_each']}"],
        ["REST requests an hour", f"{result['rest_requests_an_hour']} of {result['limit_an_hour_each']}"],
        ["catching up first, with the deliveries of as many comments", f"{result['before_it']['rest_requests']} REST requests and {result['before_it']['graphql_queries']} GraphQL queries in {result['before_it']['seconds']:.0f} s"],
        ["👍 to the start of the work", f"{result['reaction_to_start_s']} s"],
        ["/readyz meanwhile, p50 / p99", f"{result['readyz']['p50_ms']} / {result['readyz']['p99_ms']} ms"],
    ]  # fmt: skip
    return (
        f"Waiting for approval:\n\n{table(['what', 'measured'], rows)}\n\n{_caption(result['environment'])}"
    )


def _load(result: dict[str, Any]) -> str:
    where, sent, request = result["environment"], result["deliveries"], result["request_medians"]
    rows = [
        [
            "a delivery answered, p50 / p99 / max",
            f"{sent['at_rate']['p50_ms']} / {sent['at_rate']['p99_ms']} / {sent['at_rate']['max_ms']} ms",
            f"{sent['at_rate']['n']} deliveries at {sent['at_rate']['rate_per_s']:g} a second",
        ],
        [
            "deliveries a second, flat out",
            f"{sent['flat_out']['per_s']}",
            f"p99 {sent['flat_out']['p99_ms']} ms over {sent['flat_out']['n']}",
        ],
        ["comment to 👀", f"{request['comment_to_eyes_s']} s", f"median of {request['n']}"],
        ["comment to profile", f"{request['comment_to_profile_s']} s", f"median of {request['n']}"],
        ["approval to draft pull request", f"{request['approval_to_pull_s']} s", f"median of {request['n']}"],
        ["pull request to verdict (CPU)", f"{request['pull_to_verdict_s']} s", f"median of {request['n']}"],
    ]
    return table(["what", "measured", "how"], rows) + f"\n\n{_caption(where)}"


# What is shown of benchmarks/results/service, by the beginning of a file's name; docs/pages.md has the rest.
SERVICE = (("load", _load), ("approvals", _approvals), ("faults", _faults))

if __name__ == "__main__":
    main()
