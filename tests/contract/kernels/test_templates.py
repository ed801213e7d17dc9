"""Templates: segment mean pooling, and linear layers with a loss by chunks, printed and run against fp64 autograd."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from typing import Any

import pytest

from agents.catalog.lookup import catalog
from kernels.derivation import Unsupported
from kernels.derive import derive
from kernels.module_style import ModuleStyle
from kernels.op_spec import OpSpec, TensorSpec
from kernels.printer import kernel_names, print_module
from kernels.templates.segment_mean_pooling import REFERENCE
from tests.contract.kernels.catalog_cases import assert_close, case, run, trace_source

# Offsets are drawn below vocab_size, in no order: segments overlap, are empty, and reach beyond the 23 rows.
POOLING_SIZES = [
    {"batch": 3, "seq_len": 23, "n_cols": 5, "n_offsets": 8, "vocab_size": 30},
    {"batch": 1, "seq_len": 70, "n_cols": 131, "n_offsets": 3, "vocab_size": 71},
    {"batch": 2, "seq_len": 9, "n_cols": 4, "n_offsets": 2, "vocab_size": 9},
]
X = TensorSpec(name="x", shape=("*", "hidden_size"))
WEIGHT = TensorSpec(name="weight", shape=("vocab_size", "hidden_size"), learnable=True, init="randn")
BIAS = TensorSpec(name="bias", shape=("vocab_size",), learnable=True, init="zeros")
TARGET = TensorSpec(name="target", shape=("*",), dtype="int64", needs_grad=False)
PROGRAM = """
import json, os, sys, tempfile
os.environ["TRITON_INTERPRET"] = "1"
from runners.interpreter import repair
repair()
import torch
from pathlib import Path
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from tests.contract.kernels.interpreted import load

class Largest(TorchDispatchMode):
    elements = 0
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        sizes = [t.numel() for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
        self.elements = max([self.elements, *sizes])
        return result

given = json.load(sys.stdin)
with tempfile.TemporaryDirectory() as folder:
    module = load(given["module"], "chunked", Path(folder))
    x = torch.randn(64, 8, requires_grad=True)
    weight = torch.randn(100, 8, requires_grad=True)
    target = torch.randint(0, 100, (64,))
    with Largest() as largest:
        loss = getattr(module, given["function"]).apply(x, weight, target)
        loss.backward(retain_graph=True)
    once = x.grad.clone()
    loss.backward()
    with torch.no_grad():
        quiet = getattr(module, given["function"]).apply(x, weight, target)
print(json.dumps({"largest": largest.elements, "twice": torch.equal(x.grad, 2 * once), "quiet": torch.equal(quiet, loss)}))
"""


def linear(body: str, *tensors: TensorSpec) -> OpSpec:
    names = ", ".join(t.name for t in tensors)
    source = f"import torch\nimport torch.nn.functional as F\n\n\ndef f({names}):\n    return {body}\n"
    return OpSpec(name="f", entry="f", source=source, tensors=tensors)


def pooling_case(source: str = REFERENCE, **fields: Any) -> dict[str, Any]:
    op = catalog().ops["segment_mean_pooling"].op.model_copy(update={"source": source, **fields})
    return {**case(op), "sizes": POOLING_SIZES}


def test_segments_in_any_order_match_the_reference():
    assert_close(run([pooling_case()])["segment_mean_pooling"])


def test_the_reference_is_known_under_another_name():
    source = REFERENCE.replace("def segment_mean_pooling(", "def pool(")
    op = OpSpec(name="pool", entry="pool", source=source)
    derivation = derive(trace_source(op))
    assert derivation.template == "segment_mean_pooling"
    assert [t.shape for t in derivation.op.tensors] == [
        ("batch", "seq_len", "n_cols"),
        ("batch", "n_offsets"),
    ]


def test_another_pooling_is_not_taken_for_it():
    other = REFERENCE.replace("clamp(min=1)", "clamp(min=2)")
    with pytest.raises(Unsupported):
        derive(trace_source(OpSpec(name="segment_mean_pooling", entry="segment_mean_pooling", source=other)))


@pytest.mark.parametrize("name", ["segment_mean_pooling", "fused_linear_cross_entropy"])
def test_a_template_is_printed_in_the_style_of_the_target(name: str):
    style = ModuleStyle.standalone(name).model_copy(
        update={
            "utils_module": "liger_kernel.ops.utils",
            "device_context": True,
            "function_class": "LigerFunction",
        }
    )
    derivation = derive(trace_source(catalog().ops[name].op))
    module = print_module(derivation, style)
    tree = ast.parse(module)
    functions = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    assert set(kernel_names(derivation, style)) <= functions
    assert {style.forward_wrapper, style.backward_wrapper} <= functions
    assert module.count("@ensure_contiguous") == 2
    assert "with device_context(" in module
    assert ".contiguous()" not in module
    assert all(len(line) <= 120 for line in module.splitlines())


@pytest.mark.parametrize(
    ("body", "tensors"),
    [
        ("F.cross_entropy(x @ weight.t(), target)", (X, WEIGHT, TARGET)),
        ("F.cross_entropy(torch.matmul(x, weight.transpose(0, 1)) + bias, target)", (X, WEIGHT, BIAS, TARGET)),
        ("F.cross_entropy(F.linear(x, weight, bias), target, label_smoothing=0.1, reduction='sum')", (X, WEIGHT, BIAS, TARGET)),
        ("torch.logsumexp(F.linear(x, weight), -1).square().mean()", (X, WEIGHT)),
        ("F.cross_entropy(20 * torch.tanh(F.linear(x, weight) / 20), target)", (X, WEIGHT, TARGET)),
        (
            "F.cross_entropy(F.linear(x, weight), target, ignore_index=2)",
            (X, WEIGHT.model_copy(update={"needs_grad": False}), TARGET),
        ),
    ],
)  # fmt: skip
def test_a_linear_layer_and_its_loss_are_chunked(body: str, tensors: tuple[TensorSpec, ...]):
    one = case(linear(body, *tensors))
    assert "for start in range(0, max(n_rows, 1), chunk_rows):" in one["module"]
    assert_close(run([one])["f"])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("torch.logsumexp(F.linear(x, weight), -1).amax()", "no sum over rows"),
        ("torch.sqrt(F.linear(x, weight).square().sum())", "no sum over rows"),
        ("F.linear(x, weight)", "mm is outside the rules"),
    ],
)
def test_what_is_no_sum_over_rows_is_not_chunked(body: str, reason: str):
    with pytest.raises(Unsupported, match=reason):
        derive(trace_source(linear(body, X, WEIGHT)))


def test_the_logits_are_never_whole_in_memory():
    derivation = derive(trace_source(catalog().ops["fused_linear_cross_entropy"].op))
    style = ModuleStyle.standalone("flce")
    given = {"module": print_module(derivation, style), "function": style.function_class}
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-2000:]
    answer = json.loads(process.stdout)
    # 64 rows of 100 logits are 6400 elements; the largest tensor is the weight's gradient, 100 x 8.
    assert answer == {"largest": 800, "twice": True, "quiet": True}
