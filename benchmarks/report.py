"""Writes docs/performance.md and its plot from the stored results: no number in it was typed by hand.

python -m benchmarks.report
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "performance.md"
PLOT = ROOT / "docs" / "images" / "roofline.png"
PASSES = ("forward", "backward", "full")
LARGE_BYTES = 64 * 1024**2
TARGETS = {"forward": 90.0, "backward": 80.0}
MUST_BEAT = 1.03  # never more than 3% slower than the incumbent


# What is known about the points below target; the numbers are in the tables.
REASONS = """\
- `layer_norm` backward at 16384 columns: the two column sums alone take half of a multiprocessor's registers, so the row spills though it is read again. A kernel for dx and another
  for the sums would read the row twice more, which costs as much.
- `layer_norm`, `dyt` backward at 4096 columns: the sum of the parts follows the kernel (one launch for both sums of columns), and the kernel itself takes some fifty microseconds.
- backward passes at 1024 to 4096 rows of 4096 columns move less than 64 MiB: the launches are a larger part.
- `cross_entropy`: the forward reads the row twice where it writes the gradient, and beyond the L2 cache the second time comes from memory as well; the exponentials are the rest.
- `kl_div`, `jsd`, `tvd` forward: the logarithm is some 27 instructions, and there is time for about 26 an element; nothing is written that would hide them.
- `softmax` at 1024 x 4096, `rms_norm` forward at 8192 x 4096: within a microsecond of Liger's kernel; run again, ours was 3% slower, or 1% (0.0374 and 0.0369 ms), and no number of warps did better."""


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
        _plot(records)
        parts += ["## Kernels on one H200", *_kernels(gpu, records)]
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
    return f"Killed at random:\n\n{_table(['what', 'measured'], rows)}\n\n{_caption(result['environment'])}"


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
        f"Waiting for approval:\n\n{_table(['what', 'measured'], rows)}\n\n{_caption(result['environment'])}"
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
    return _table(["what", "measured", "how"], rows) + f"\n\n{_caption(where)}"


def _kernels(results: list[dict[str, Any]], records: list[dict[str, Any]]) -> Iterable[str]:
    for where in {
        json.dumps(result["environment"], sort_keys=True): result["environment"] for result in results
    }.values():
        yield f"{where['gpu']}, driver {where['driver']}, torch {where['torch']}, triton {where['triton']}, Python {where['python']}, commit `{where['commit'] or 'unrecorded'}`: `{where['command']}`"
    yield "Medians in milliseconds; `x` is the other's time over ours. Roofline: the time of a copy of as many bytes as the pass must move, in the same rounds, over our time. A loss whose forward writes its gradient is judged by `full` alone: its `forward` is timed without gradients, and its `backward` finds the gradient written."
    yield _verdict(records)
    yield "Why some are below:\n\n" + REASONS
    yield f"![Percent of the roofline]({PLOT.relative_to(PAGE.parent)})"
    for which in PASSES:
        rows = [_row(record) for record in records if record["pass"] == which]
        if rows:
            yield f"### {which}"
            yield _table(
                [
                    "op",
                    "shape",
                    "dtype",
                    "ours",
                    "roofline",
                    "eager",
                    "torch.compile",
                    "Liger",
                    "peak MiB (eager)",
                    "noise",
                ],
                rows,
            )
    problems = [one for result in results for one in result["problems"]]
    if problems:
        yield "### Not measured"
        yield "\n".join(
            f"- {one['op']} {one.get('shape', '')}: {one['problem'].splitlines()[0][:200]}"
            for one in problems
        )


def _row(record: dict[str, Any]) -> list[str]:
    def against(name: str) -> str:
        other = record.get(f"{name}_ms")
        return "" if other is None else f"{other:.4f} ({other / record['candidate_ms']:.2f}x)"

    peak = (
        f"{record['peak_bytes'] / 2**20:.0f} ({record['eager_peak_bytes'] / 2**20:.0f})"
        if record["pass"] == "full"
        else ""
    )
    low, high = record["candidate_interval_ms"]
    ours = f"{record['candidate_ms']:.4f} [{low:.4f}, {high:.4f}]"
    shape = " x ".join(str(size) for size in record["shape"])
    return [
        record["op"],
        shape,
        record["dtype"],
        ours,
        "" if record["roofline_pct"] is None else f"{record['roofline_pct']:.0f}%",
        against("eager"),
        against("compile"),
        against("incumbent"),
        peak,
        f"{100 * record['noise_floor']:.1f}%",
    ]


def _with_roofline(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Points large enough for bandwidth to decide."""
    return [one for one in _apart(records) if one["bytes"] >= LARGE_BYTES]


def _apart(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Points whose forward and backward can be told apart, and all forward + backward points."""
    joined = {one["op"] for one in records if one["pass"] == "backward" and one["roofline_pct"] is None}
    return [one for one in records if one["pass"] == "full" or one["op"] not in joined]


def _verdict(records: list[dict[str, Any]]) -> str:
    """What holds and what doesn't, counted; the misses are named."""
    lines = []
    for which, target in TARGETS.items():
        large = [one for one in _with_roofline(records) if one["pass"] == which]
        missed = [one for one in large if one["roofline_pct"] < target]
        named = ", ".join(
            f"{one['op']} {one['shape'][0]}x{one['shape'][1]} ({one['roofline_pct']:.0f}%)" for one in missed
        )
        lines.append(
            f"- {which} at {target:.0f}% of copy bandwidth or more: {len(large) - len(missed)} of {len(large)} points"
            + (f"; below: {named}" if named else "")
        )
    rivals = [one for one in _apart(records) if "incumbent_ms" in one]
    slower = [one for one in rivals if one["candidate_ms"] > MUST_BEAT * one["incumbent_ms"]]
    named = ", ".join(
        f"{one['op']} {one['shape'][0]}x{one['shape'][1]} {one['pass']} ({one['incumbent_ms'] / one['candidate_ms']:.2f}x)"
        for one in slower
    )
    if rivals:
        lines.append(
            f"- within 3% of Liger's kernel or faster: {len(rivals) - len(slower)} of {len(rivals)} points"
            + (f"; slower: {named}" if named else "")
        )
        full = [one["incumbent_ms"] / one["candidate_ms"] for one in rivals if one["pass"] == "full"]
        if full:
            lines.append(
                f"- geometric mean over Liger's kernels, forward + backward: {math.exp(sum(map(math.log, full)) / len(full)):.2f}x over {len(full)} points"
            )
    return "\n".join(lines)


def _plot(records: list[dict[str, Any]]) -> None:
    """Percent of the roofline of each op, losses included, and of its baselines."""
    shown = [one for one in _with_roofline(records) if one["pass"] in TARGETS]
    figure, axes = plt.subplots(1, 2, figsize=(13, max(4.0, 0.22 * len(shown) / 2)), sharex=True)
    for axis, which in zip(axes, TARGETS, strict=True):
        chosen = sorted((one for one in shown if one["pass"] == which), key=lambda one: one["roofline_pct"])
        labels = [f"{one['op']} {one['shape'][0]}x{one['shape'][1]}" for one in chosen]
        axis.barh(labels, [one["roofline_pct"] for one in chosen], color="#2f6f9f", label="derived")
        for name, mark, colour in (
            ("eager", "|", "#c2452d"),
            ("compile", "x", "#7a5ea8"),
            ("incumbent", "d", "#e0a030"),
        ):
            points = [
                (one["roofline_pct"] * one["candidate_ms"] / one[f"{name}_ms"], label)
                for one, label in zip(chosen, labels, strict=True)
                if f"{name}_ms" in one
            ]
            if points:
                axis.scatter(
                    *zip(*points, strict=True),
                    marker=mark,
                    color=colour,
                    zorder=3,
                    label={"compile": "torch.compile", "incumbent": "Liger"}.get(name, name),
                )
        axis.axvline(TARGETS[which], color="#444444", linestyle="--", linewidth=0.8)
        axis.set_title(f"{which}: percent of copy bandwidth")
        axis.tick_params(labelsize=7)
        axis.legend(loc="lower right", fontsize=7)
    PLOT.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(PLOT, dpi=110)
    plt.close(figure)


def _table(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# What is shown of benchmarks/results/service, by the beginning of a file's name; docs/pages.md has the rest.
SERVICE = (("load", _load), ("approvals", _approvals), ("faults", _faults))

if __name__ == "__main__":
    main()
