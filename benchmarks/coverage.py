"""Derive every op of the catalog and write docs/coverage.md: derived, or Unsupported and why.

python -m benchmarks.coverage            # writes docs/coverage.md
python -m benchmarks.coverage --check    # exits with 1 when the file is out of date
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.catalog.known_op import KnownOp
from agents.catalog.lookup import catalog
from kernels.derivation import Derivation, Unsupported
from kernels.derive import derive
from kernels.trace import trace

PAGE = Path(__file__).resolve().parents[1] / "docs" / "coverage.md"
HEADER = "| op | forward | backward | kernels | saved | tensors moved (eager) |\n|---|---|---|---|---|---|\n"


@dataclass(frozen=True)
class Row:
    """One op's line of the table."""

    name: str
    category: str
    text: str
    derived: bool


def derived_row(known: KnownOp, derivation: Derivation) -> Row:
    traffic = derivation.traffic
    kernels = sum(s.schedule is not None for s in (*derivation.forward_steps, *derivation.backward_steps))
    moved = f"{traffic.forward_tensors} + {traffic.backward_tensors} ({traffic.eager_forward_tensors} + {traffic.eager_backward_tensors})"
    saved = ", ".join(s.name for s in derivation.saved) or "nothing"
    cells = [
        known.op.name,
        derivation.forward_schedule.name,
        derivation.backward_schedule.name,
        str(kernels),
        saved,
        moved,
    ]
    return Row(known.op.name, known.category, f"| {' | '.join(cells)} |", derived=True)


def row(known: KnownOp) -> Row:
    namespace: dict[str, Any] = {}
    exec(compile(known.op.source, "<reference>", "exec"), namespace)  # noqa: S102 - the catalog's own references
    try:
        return derived_row(known, derive(trace(known.op, namespace[known.op.entry])))
    except Unsupported as answer:
        where = f" ({answer.where})" if answer.where else ""
        return Row(
            known.op.name, known.category, f"| {known.op.name} | {answer.reason}{where} |", derived=False
        )


def page(rows: list[Row]) -> str:
    derived = [r for r in rows if r.derived]
    parts = [
        "# What the rules cover\n",
        "Made by `python -m benchmarks.coverage` from a run over the whole catalog; every derived op is checked against fp64",
        "autograd by `tests/contract/kernels/test_derived_ops.py`.\n",
        f"**{len(derived)} of {len(rows)} ops are derived**, forward and all gradients. Full tensors moved are forward + backward;",
        "in brackets what eager moves, one ATen kernel after the other.\n",
    ]
    for category in sorted({r.category for r in derived}):
        lines = [r.text for r in derived if r.category == category]
        parts.append(f"## {category} ({len(lines)})\n\n{HEADER}" + "\n".join(lines) + "\n")
    refused = [r.text for r in rows if not r.derived]
    if refused:
        parts.append("## Outside the rules\n\n| op | why |\n|---|---|\n" + "\n".join(refused) + "\n")
    return "\n".join(parts)


def main(arguments: list[str]) -> int:
    text = page([row(known) for _, known in sorted(catalog().ops.items())])
    if "--check" in arguments:
        return 0 if PAGE.read_text() == text else 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
