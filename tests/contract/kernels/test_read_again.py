"""Rows of one block that is too wide for the registers: what is needed after the reduction is read again."""

from __future__ import annotations

import pytest

from agents.catalog.lookup import catalog
from kernels.derive import derive
from kernels.module_style import ModuleStyle
from kernels.printer import call_order, print_module
from kernels.schedules import READ_AGAIN_COLUMNS, READ_AGAIN_MANY_COLUMNS
from tests.contract.kernels.catalog_cases import Outcome, assert_close, run, trace_source

OPS = ["softmax", "rms_norm", "layer_norm", "fused_add_rms_norm", "poly_norm"]
COLUMNS = READ_AGAIN_COLUMNS // 2 + 809  # the next power of two is READ_AGAIN_COLUMNS


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    cases = []
    for name in OPS:
        derivation = derive(trace_source(catalog().ops[name].op))
        style = ModuleStyle.standalone(name)
        module = print_module(derivation, style)
        columns = READ_AGAIN_MANY_COLUMNS if name == "poly_norm" else READ_AGAIN_COLUMNS
        assert f"READ_AGAIN=BLOCK_SIZE >= {columns}" in module
        cases.append(
            {
                "op": derivation.op.model_dump(mode="json"),
                "module": module,
                "function": style.function_class,
                "call_order": call_order(derivation),
                "sizes": [{"*": [3], "n_rows": 3, "n_cols": COLUMNS}],
            }
        )
    return run(cases)


@pytest.mark.parametrize("name", OPS)
def test_a_row_that_is_read_again_matches_fp64_autograd(outcomes: dict[str, Outcome], name: str):
    assert_close(outcomes[name])


def test_a_forward_with_one_load_keeps_it():
    module = print_module(
        derive(trace_source(catalog().ops["rms_norm"].op)), ModuleStyle.standalone("rms_norm")
    )
    forward = module[
        module.index("def _rms_norm_forward_kernel") : module.index("def _rms_norm_backward_kernel")
    ]
    assert "READ_AGAIN" not in forward
