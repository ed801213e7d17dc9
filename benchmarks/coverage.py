"""Writes docs/coverage.md from a run over the whole catalog: derived, or Unsupported and why; then the stored results
of upstream's own tests (benchmarks/upstream).

python -m benchmarks.coverage [--upstream-only]
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import triton

from agents.catalog.lookup import catalog
from benchmarks.upstream.table import HEADING, section
from kernels.derivation import Derivation, Unsupported
from kernels.derive import derive
from kernels.module_style import ModuleStyle
from kernels.printer import print_module
from kernels.trace import trace

PAGE = Path(__file__).resolve().parents[1] / "docs" / "coverage.md"
UPSTREAM = Path(__file__).resolve().parent / "results" / "upstream"
UPSTREAM_RESULTS = ("h200", "cpu")


def main() -> None:
    """Trace, derive and print every op; say each as it is done. `--upstream-only` writes the last section anew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upstream-only", action="store_true", help="leave the rest of the page as it is")
    if parser.parse_args().upstream_only:
        before = PAGE.read_text(encoding="utf-8").split(f"\n{HEADING}\n")[0].rstrip("\n").split("\n")
        PAGE.write_text("\n".join([*before, *section(_upstream_results())]) + "\n", encoding="utf-8")
        return
    rows: list[list[str]] = []
    counts: Counter[str] = Counter()
    for name, known in sorted(catalog().ops.items(), key=lambda item: (item[1].category, item[0])):
        namespace: dict[str, Any] = {}
        exec(compile(known.op.source, f"{name}.py", "exec"), namespace)  # noqa: S102 - the catalog's own text
        try:
            derivation = derive(trace(known.op, namespace[known.op.entry]))
            lines = len(print_module(derivation, ModuleStyle.standalone(name)).splitlines())
            result, how = "derived", _how(derivation, lines)
        except Unsupported as unsupported:
            where = f" ({unsupported.where})" if unsupported.where else ""
            needed = f"; needed: {unsupported.needed}" if unsupported.needed else ""
            result, how = "Unsupported", f"{unsupported.reason}{where}{needed}"
        counts[result] += 1
        rows.append([known.category, f"`{name}`", result, _cell(how)])
        print(f"{name}: {result}", flush=True)
    PAGE.write_text(_page(rows, counts), encoding="utf-8")


def _how(derivation: Derivation, lines: int) -> str:
    saved = ", ".join(one.name for one in derivation.saved) or "nothing"
    schedules = f"{derivation.forward_schedule.name} / {derivation.backward_schedule.name}"
    return f"tier {derivation.tier}; {schedules}; saves {saved}; {lines} lines"


def _upstream_results() -> dict[str, Any]:
    paths = {name: UPSTREAM / f"{name}.json" for name in UPSTREAM_RESULTS}
    return {
        name: json.loads(path.read_text(encoding="utf-8")) for name, path in paths.items() if path.exists()
    }


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _page(rows: list[list[str]], counts: Counter[str]) -> str:
    lines = [
        "# Coverage",
        "",
        f"Written by `python -m benchmarks.coverage` (torch {torch.__version__}, triton {triton.__version__}): each op of the catalog is traced, derived and printed.",
        "Derived means by rule, forward and every gradient that is asked for; the numerics are tested in `tests/contract/kernels`, and judged per request by the gauntlet.",
        "",
        ", ".join(f"**{count} {what}**" for what, count in counts.most_common()) + f" of {len(rows)}.",
        "",
        "| category | op | result | schedule forward / backward, saved tensors, size; or why not |",
        "|---|---|---|---|",
        *("| " + " | ".join(row) + " |" for row in rows),
        *section(_upstream_results()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
