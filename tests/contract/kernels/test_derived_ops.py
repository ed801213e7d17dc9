"""Every op that the catalog knows: derived, printed and run in the interpreter against fp64 autograd."""

from __future__ import annotations

import pytest

from agents.catalog.lookup import catalog
from kernels.derivation import Unsupported
from tests.contract.kernels.catalog_cases import BF16_TOLERANCE, Outcome, assert_close, case, run_catalog

# Its forward sorts, and its gradient needs a hand-written formula: answered with Unsupported.
UNSUPPORTED = {"sparsemax"}
# sin(x * exp(alpha)) at |argument| up to 30: its error is the argument's, 30 fp32 roundings, for us as for eager.
ILL_CONDITIONED = {"snake_beta": 2e-5}
CATEGORIES = sorted({known.category for known in catalog().ops.values()})
# Ops whose references cast: bf16 shows whether the casts were kept.
BF16 = [
    "relu_squared",
    "swiglu",
    "geglu",
    "gelu_tanh",
    "rms_norm",
    "rms_norm_gemma",
    "rms_norm_none",
    "layer_norm",
    "softmax",
]


def names(category: str) -> list[str]:
    return sorted(
        n for n, known in catalog().ops.items() if known.category == category and n not in UNSUPPORTED
    )


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, Outcome]]:
    """Filled one category at a time: a process of its own for each."""
    return {}


@pytest.mark.parametrize(("category", "name"), [(c, n) for c in CATEGORIES for n in names(c)])
def test_derived_kernels_match_fp64_autograd(
    outcomes: dict[str, dict[str, Outcome]], category: str, name: str
):
    if category not in outcomes:
        outcomes[category] = run_catalog(names(category))
    tolerance = ILL_CONDITIONED.get(name)
    assert_close(outcomes[category][name], tolerance) if tolerance else assert_close(outcomes[category][name])


@pytest.mark.parametrize("name", BF16)
def test_bfloat16_keeps_the_references_own_casts(outcomes: dict[str, dict[str, Outcome]], name: str):
    if "bfloat16" not in outcomes:
        outcomes["bfloat16"] = run_catalog(BF16, "bfloat16")
    assert_close(outcomes["bfloat16"][name], BF16_TOLERANCE)


def test_sparsemax_is_refused_with_a_reason():
    with pytest.raises(Unsupported, match="depends on the sizes"):
        case(catalog().ops["sparsemax"].op)
