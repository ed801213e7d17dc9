"""What of the whole catalog spills under the schedule that the rule chooses, and whether another schedule would not.

    python -m benchmarks.spills [--ops a,b] [--out FILE]

Every derived op is compiled offline for every architecture at two widths. What spills anywhere is compiled again under
every schedule considered and every number of warps. No GPU is needed; the last line says how much is avoidable.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

import triton

from agents.catalog.lookup import catalog
from agents.dev import schedule_table
from agents.dev.schedule_table import Compiled, ScheduleTable
from app.derive_compile import WIDTHS, compiled_schedules
from app.dispatch import LocalBench
from kernels.derivation import Unsupported
from kernels.derive import derive
from kernels.trace import trace

OUT = Path(__file__).resolve().parent / "results" / "spills.json"
DEADLINE_S = 600.0
WORKERS = 2


async def of_op(name: str, bench: LocalBench) -> dict[str, Any]:
    """What spills of one op, and what other schedules do at the same kernel, width and architecture."""
    known = catalog().ops[name]
    namespace: dict[str, Any] = {}
    exec(compile(known.op.source, f"{name}.py", "exec"), namespace)  # noqa: S102 - the catalog's own text
    try:
        traced = trace(known.op, namespace[known.op.entry])
        derivation = derive(traced)
    except Unsupported as unsupported:
        return {"op": name, "unsupported": unsupported.reason}
    chosen_alone = await compiled_schedules(traced, derivation, bench, deadline_s=DEADLINE_S, warps=(), others=False)  # fmt: skip
    found: dict[str, Any] = {"op": name, "kernels": len({r.kernel for r in chosen_alone.rows})}
    if chosen_alone.note:
        found["note"] = chosen_alone.note
    if any(row.spill_bytes for row in chosen_alone.rows):
        table = await compiled_schedules(traced, derivation, bench, deadline_s=DEADLINE_S)
        found["spills"] = spilling(table)
    return found


def spilling(table: ScheduleTable) -> list[dict[str, Any]]:
    """Each kernel, width and architecture at which the chosen schedule spills, with the others, least spilled first."""

    def at(row: Compiled) -> tuple[str, str, str]:
        return schedule_table.direction(row.kernel), row.at, row.arch

    result = []
    for row in table.rows:
        if row.chosen and row.spill_bytes:
            others = sorted((o for o in table.rows if not o.chosen and at(o) == at(row)), key=lambda o: (o.spill_bytes, o.num_warps))  # fmt: skip
            result.append(
                {
                    **row.model_dump(exclude={"chosen"}),
                    "others": [
                        {"schedule": o.schedule, "num_warps": o.num_warps, "spill_bytes": o.spill_bytes, "registers": o.registers}
                        for o in others
                    ],
                }
            )  # fmt: skip
    return result


def known(out: Path) -> dict[str, dict[str, Any]]:
    """What an earlier run found, by op."""
    return {one["op"]: one for one in json.loads(out.read_text())["ops"]} if out.exists() else {}


def write(found: dict[str, dict[str, Any]], out: Path) -> None:
    """Keep what was found so far."""
    out.parent.mkdir(parents=True, exist_ok=True)
    environment = {
        "triton": triton.__version__,
        "widths": WIDTHS,
        "command": "python -m benchmarks.spills",
    }
    text = json.dumps({"environment": environment, "ops": [found[name] for name in sorted(found)]}, indent=1)
    out.write_text(text + "\n", encoding="utf-8")


async def run(names: list[str], out: Path) -> None:
    """Compile two ops at a time; the result is written after each, and what it holds already is not compiled again."""
    bench = LocalBench(slots=WORKERS)
    found = known(out)
    waiting = [name for name in names if name not in found]

    async def work() -> None:
        while waiting:
            name = waiting.pop(0)
            found[name] = await of_op(name, bench)
            print(
                f"{len(found)} of {len(names)}: {name}, {len(found[name].get('spills', []))} spill",
                flush=True,
            )
            write(found, out)

    await asyncio.gather(*(work() for _ in range(WORKERS)))
    spills = [one for op in found.values() for one in op.get("spills", [])]
    avoidable = [one for one in spills if one["others"] and not one["others"][0]["spill_bytes"]]
    print(
        f"{len(spills)} (kernel, width, architecture) spill; another schedule avoids {len(avoidable)} of them"
    )


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--ops", help="names, with commas between them; default: the whole catalog")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    names = options.ops.split(",") if options.ops else sorted(catalog().ops)
    asyncio.run(run(names, options.out))


if __name__ == "__main__":
    main()
