"""The pages of docs/performance.md on kernels: from stored records to what holds, tables and a plot."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

PASSES = ("forward", "backward", "full")
LARGE_BYTES = 64 * 1024**2
TARGETS = {"forward": 90.0, "backward": 80.0}
MUST_BEAT = 1.03  # never more than 3% slower than the incumbent

# What is known about the points below target; the numbers are in the tables.
REASONS = """\
- `layer_norm` backward at 16384 columns: the two column sums alone take half of a multiprocessor's registers, so the row spills though it is read again. A kernel for dx and another
  for the sums would read the row twice more, which costs as much.
- `layer_norm`, `dyt` backward at 4096 columns: the sums of the parts follow the kernel: of dyt's 66 microseconds at 8192 x 4096 they take 8, three of them for alpha's alone. Other blocks, warps,
  programs a multiprocessor, stages and tiles of the sum were tried: none is faster by more than 1%.
- backward passes at 1024 to 4096 rows of 4096 columns have tensors of 8 to 32 MiB: the launches are a larger part.
- `cross_entropy`: the forward reads the row twice where it writes the gradient, and beyond the L2 cache the second time comes from memory as well: three passes over memory
  instead of two. Rows held in registers, and fewer rows in flight, were tried (docs/derivation.md, "Powers of two"). Liger's loss waits for the host in the middle: its time follows the host's speed.
- `kl_div`, `jsd`, `tvd` forward: the logarithm is some 27 instructions, and there is time for about 26 an element; nothing is written that would hide them.
- points of 10 to 40 microseconds at 1024 to 8192 rows of 4096 columns are within a microsecond and a half of Liger's kernel, and those more than 3% behind are others in every run; loading the weight before
  the reduction, streaming stores and other numbers of warps changed 1% or less."""


def kernels(results: list[dict[str, Any]], records: list[dict[str, Any]], image: str) -> Iterable[str]:
    """Where and how it was measured, what holds, why some points miss, the plot and the tables."""
    for where in {
        json.dumps(result["environment"], sort_keys=True): result["environment"] for result in results
    }.values():
        yield _machine(where)
    yield "Medians in milliseconds; `x` is the other's time over ours. Roofline: the time of a copy of as many bytes as the pass must move, in the same rounds, over our time. A loss whose forward writes its gradient is judged by `full` alone: its `forward` is timed without gradients, and its `backward` finds the gradient written."
    yield _verdict(records)
    yield "Why some are below:\n\n" + REASONS
    yield f"![Percent of the roofline]({image})"
    for which in PASSES:
        rows = [_row(record) for record in records if record["pass"] == which]
        if rows:
            yield f"### {which}"
            yield table(
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


def plot(records: list[dict[str, Any]], path: Path) -> None:
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
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def few_rows(split: dict[str, Any], blocks: dict[str, Any]) -> Iterable[str]:
    """A row split over programs (`rows=split`) beside a row read in blocks by one program (`rows=blocks`) and eager."""
    yield from (_machine(split["environment"]), _machine(blocks["environment"]))
    yield "`/liger revise rows=split` gives each row as many programs as keep the GPU busy; without it a row has one program, here in blocks. Liger's kernels take rows of up to 65536 columns and refuse these."
    one_program = {_point(record): record["candidate_ms"] for record in blocks["records"]}
    rows = [
        [
            record["op"],
            f"{record['shape'][0]} x {record['shape'][1]}",
            record["pass"],
            f"{record['candidate_ms']:.4f}",
            "" if record["roofline_pct"] is None else f"{record['roofline_pct']:.0f}%",
            f"{one_program[_point(record)]:.4f} ({one_program[_point(record)] / record['candidate_ms']:.1f}x)",
            f"{record['eager_ms']:.4f} ({record['eager_ms'] / record['candidate_ms']:.2f}x)",
        ]
        for record in split["records"]
    ]
    yield table(["op", "shape", "pass", "split", "roofline", "one program a row", "eager"], rows)


def _point(record: dict[str, Any]) -> tuple[Any, ...]:
    return record["op"], tuple(record["shape"]), record["dtype"], record["pass"]


def _machine(where: dict[str, Any]) -> str:
    incumbent = f", beside {where['incumbent']}" if where.get("incumbent") else ""
    return f"{where['gpu']}, driver {where['driver']}, torch {where['torch']}, triton {where['triton']}, Python {where['python']}{incumbent}, commit `{where['commit'] or 'unrecorded'}`: `{where['command']}`"


def table(header: list[str], rows: Iterable[list[str]]) -> str:
    """Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
