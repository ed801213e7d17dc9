"""The dozen ops whose printed modules are kept as snapshots. Run as a module to write them anew."""

from __future__ import annotations

from pathlib import Path

from agents.catalog.lookup import catalog
from kernels.derive import derive
from kernels.module_style import ModuleStyle
from kernels.printer import print_module
from tests.contract.kernels.catalog_cases import trace_source

SNAPSHOTS = Path(__file__).resolve().parents[2] / "snapshots" / "kernels"
SNAPSHOT_OPS = (
    "relu_squared", "gelu_tanh", "mish", "swiglu", "swiglu_packed", "rms_norm", "layer_norm", "softmax", "dyt",
    "cross_entropy", "fused_add_rms_norm", "group_norm", "rope", "top_k_router",
)  # fmt: skip


# The same with a schedule that is asked for: snapshot -> op and how it is derived.
ASKED = {"softmax_split_rows": ("softmax", {"split_rows": True})}


def snapshot(name: str) -> str:
    op, asked = ASKED.get(name, (name, {}))
    return print_module(derive(trace_source(catalog().ops[op].op), **asked), ModuleStyle.standalone(op))


def main() -> None:
    SNAPSHOTS.mkdir(parents=True, exist_ok=True)
    for name in (*SNAPSHOT_OPS, *ASKED):
        (SNAPSHOTS / f"{name}.py").write_text(snapshot(name))


if __name__ == "__main__":
    main()
