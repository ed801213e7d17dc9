"""Printed modules as a reviewer sees them: a dozen snapshots, and the rules that every one keeps."""

from __future__ import annotations

import ast
import re

import pytest

from agents.catalog.lookup import catalog
from kernels.derivation import Derivation
from kernels.derive import derive
from kernels.module_style import ModuleStyle
from kernels.printer import call_order, kernel_names, print_module
from tests.unit.kernels.references import derived, kernel, printed
from tests.unit.kernels.snapshot_ops import ASKED, SNAPSHOT_OPS, SNAPSHOTS, snapshot

LIGER = ModuleStyle(
    op_name="relu_squared",
    function_class="LigerReLUSquaredFunction",
    forward_wrapper="relu_squared_forward",
    backward_wrapper="relu_squared_backward",
    forward_kernel="_relu_squared_forward_kernel",
    backward_kernel="_relu_squared_backward_kernel",
    utils_module="liger_kernel.ops.utils",
    device_context=True,
)


@pytest.fixture(scope="module")
def relu_squared() -> Derivation:
    return derived("def f(x):\n    return torch.relu(x).square()\n", name="relu_squared")


@pytest.mark.parametrize("name", [*SNAPSHOT_OPS, *ASKED])
def test_printed_module_matches_its_snapshot(name: str):
    """Reviewed like any diff: `python -m tests.unit.kernels.snapshot_ops` writes them anew."""
    assert snapshot(name) == (SNAPSHOTS / f"{name}.py").read_text()


@pytest.mark.parametrize("name", [*SNAPSHOT_OPS, *ASKED])
def test_printed_module_keeps_the_rules(name: str):
    text = (SNAPSHOTS / f"{name}.py").read_text()
    ast.parse(text)
    for source in re.findall(r"@triton\.jit\ndef (_\w+_kernel)\(", text):
        body = kernel(text, source)
        assert "tl.program_id(0).to(tl.int64)" in body or ").to(tl.int64) *" in body, "32-bit row offsets"
    for scalar in re.findall(r"^        float\((\w+)\),$", text, re.MULTILINE):
        assert f"{scalar} = tl.cast({scalar}, tl.float32)" in text, "a float argument that isn't pinned"
    assert "libdevice" not in text, "Triton's interpreter has no libdevice"
    assert "0.7978" not in text.replace("SQRT_2_OVER_PI = tl.constexpr(0.7978845608028654)", ""), (
        "a magic constant"
    )
    assert not re.search(r"\bt\d*\b = ", text), "a nameless value"


def test_a_module_in_ligers_idiom(relu_squared: Derivation):
    text = print_module(relu_squared, LIGER)
    assert "from liger_kernel.ops.utils import device_context\n" in text
    assert "from liger_kernel.ops.utils import ensure_contiguous\n" in text
    assert "    @staticmethod\n    @ensure_contiguous\n    def forward(ctx, X):\n" in text
    assert "    with device_context(X.device):\n" in text
    assert ".contiguous()" not in text


def test_a_row_kernel_takes_its_settings_from_the_target():
    style = LIGER.model_copy(update={"op_name": "norm"})
    text = print_module(derived("def f(x):\n    return torch.softmax(x, -1)\n"), style)
    assert "from liger_kernel.ops.utils import calculate_settings\n" in text
    assert "def calculate_settings" not in text


def test_kernel_names_and_call_order(relu_squared: Derivation):
    assert kernel_names(relu_squared, LIGER) == [
        "_relu_squared_forward_kernel",
        "_relu_squared_backward_kernel",
    ]
    assert call_order(relu_squared) == ["x"]


def test_call_order_follows_the_references_signature():
    d = derived(
        "def f(gate, x, alpha=1.702, approximate='tanh'):\n    return gate * torch.sigmoid(alpha * x)\n"
    )
    assert call_order(d) == ["gate", "x", "alpha"]


def test_every_launched_kernel_is_named():
    d = derived("def f(x):\n    return x / torch.sqrt(x.square().sum())\n")
    text = print_module(d, ModuleStyle.standalone("op"))
    names = kernel_names(d, ModuleStyle.standalone("op"))
    assert len(names) == 2 + 2
    assert all(f"def {n}(" in text for n in names)


def test_a_docstring_cannot_be_ended_by_the_references_words():
    op = catalog().ops["relu"].op.model_copy(update={"summary": 'y = """ + __import__("os").getcwd() + """'})
    from tests.contract.kernels.catalog_cases import trace_source

    tree = ast.parse(print_module(derive(trace_source(op)), ModuleStyle.standalone("relu")))
    assert not any(isinstance(n, ast.Name) and n.id == "__import__" for n in ast.walk(tree))


def test_wide_row_values_are_loaded_after_the_reduction_that_precedes_their_use():
    text = printed("def f(x, weight):\n    return F.layer_norm(x, (x.shape[-1],), weight)\n")
    body = kernel(text, "_op_forward_kernel")
    assert body.index("tl.sum(x, axis=0)") < body.index("weight = tl.load")


def test_a_device_context_without_its_module_is_refused(relu_squared: Derivation):
    style = ModuleStyle.standalone("relu_squared").model_copy(update={"device_context": True})
    with pytest.raises(ValueError, match="utils_module"):
        print_module(relu_squared, style)


def test_a_constant_beside_a_label_stays_whole():
    """tl.where(…, label, 0.0) is a float, which can't be added to a pointer."""
    text = printed(
        "def f(x, target):\n"
        "    index = torch.where(target >= 0, target, 0)\n"
        "    return torch.logsumexp(x, -1) - torch.gather(x, -1, index[:, None])[:, 0]\n",
    )
    assert "target, 0)" in kernel(text, "_op_forward_kernel")
    assert "target, 0.0)" not in text


def test_a_size_that_is_cut_into_equal_parts_is_checked():
    """rotate_half of an odd head_dim has unequal halves: the kernel would leave the last column unwritten."""
    assert "if X.shape[-1] % 2:" in snapshot("rope")
    assert "head_dim must be a multiple of 2" in snapshot("rope")
    assert "must be a multiple" not in snapshot("rms_norm")


def test_the_mean_of_nothing_is_nan():
    mean = printed("def f(x, t):\n    return torch.mean((x - t).square())\n", name="mean_square")
    assert 'if n_elements == 0:\n        Y = torch.full_like(Y, float("nan"))' in mean
    half = printed("def f(x, t):\n    return 0.5 * torch.mean((x - t).square())\n", name="half_mean_square")
    assert 'if n_elements == 0:\n        Y = torch.full_like(Y, float("nan"))' in half
    total = printed("def f(x, t):\n    return torch.sum((x - t).square())\n", name="sum_square")
    assert "nan" not in total


def test_sums_over_buffers_of_one_shape_share_a_launch():
    text = (SNAPSHOTS / "layer_norm.py").read_text()
    assert text.count("= sum_parts(") == 1
    assert "dweight, dbias = sum_parts(_parts, " in text


def test_a_forwards_result_is_never_an_intermediate_of_it():
    # torch 2.11's compiler gave the gradient to the intermediate: in fp32, where the cast is none, dX was 0 in silence.
    text = (SNAPSHOTS / "cross_entropy.py").read_text()
    assert "Y = (total / count).to(X.dtype, copy=True)" in text
