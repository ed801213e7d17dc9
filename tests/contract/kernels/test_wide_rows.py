"""Rows wider than a block: derived again with loops, checked where several blocks are needed."""

from __future__ import annotations

import pytest

from agents.catalog.lookup import catalog
from kernels.derive import derive
from kernels.module_style import ModuleStyle
from kernels.printer import call_order, print_module
from tests.contract.kernels.catalog_cases import Outcome, assert_close, run, trace_source

# Each needs one, two or three levels of reductions, forward or backward.
OPS = [
    "softmax",
    "log_softmax",
    "rms_norm_no_weight",
    "layer_norm_no_affine",
    "l2_norm",
    "cross_entropy",
    "kl_div",
    # With column gradients: one kernel for dx, in blocks, and one for the sums over rows, in tiles of columns.
    "rms_norm",
    "layer_norm",
    "fused_add_rms_norm",
]
COLUMNS = 4099  # prime, and more than one block of 2048


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    cases = []
    for name in OPS:
        traced = trace_source(catalog().ops[name].op)
        derivation = derive(traced, wide_rows=True)
        style = ModuleStyle.standalone(name)
        module = print_module(derivation, style)
        assert (
            "for start in range(0, n_cols, BLOCK_SIZE):" in module
            or derivation.forward_schedule.name == "flat"
        )
        cases.append(
            {
                "op": derivation.op.model_dump(mode="json"),
                "module": module,
                "function": style.function_class,
                "call_order": call_order(derivation),
                "sizes": [{"*": [2], "n_rows": 2, "n_cols": COLUMNS}],
            }
        )
    return run(cases)


@pytest.mark.parametrize("name", OPS)
def test_looped_rows_match_fp64_autograd(outcomes: dict[str, Outcome], name: str):
    assert_close(outcomes[name])


@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "fused_add_layer_norm"])
def test_column_gradients_get_a_kernel_of_their_own(name: str):
    derivation = derive(trace_source(catalog().ops[name].op), wide_rows=True)
    schedules = [s.schedule.name for s in derivation.backward_steps if s.schedule]
    assert schedules == ["looped_row", "row_block"]
    module = print_module(derivation, ModuleStyle.standalone(name))
    assert "calculate_settings" not in module, "no kernel holds a whole row"


def test_rows_that_fit_keep_one_backward_kernel():
    derivation = derive(trace_source(catalog().ops["rms_norm"].op))
    assert [s.schedule.name for s in derivation.backward_steps if s.schedule] == ["row_block"]
