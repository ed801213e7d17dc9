"""The files around a kernel: what they say for each kind of op."""

import ast

import pytest
from inline_snapshot import snapshot

from agents.conventions import Conventions, detect
from agents.dev.benchmark_file import benchmark_file
from agents.dev.reference_in_test import reference_in_test
from agents.dev.signature import Signature, other_value
from agents.dev.skeletons import docstring_text, functional_code, literal, module_file
from agents.dev.unit_test_file import unit_test_file
from kernels.derivation import Operand
from kernels.op_spec import OpSpec, ScalarSpec
from tests.dev_profiles import GATE, MASKED_LOSS, RELU_SQUARED, SCALED, kernel_profile
from tests.dict_tree import DictTree
from tests.mini_library import mini_library

OPS = [RELU_SQUARED, GATE, SCALED, MASKED_LOSS]


def conventions(api: str = "functions", **changes: object) -> Conventions:
    return detect(DictTree(mini_library())).model_copy(update={"benchmark_api": api, **changes})


def signature(op: OpSpec, outputs: tuple[str, ...] = ("full",)) -> Signature:
    order = [spec.name for spec in (*op.tensors, *op.scalars)]
    return Signature.of(kernel_profile(op), order, operands(*outputs))


def operands(*roles: str) -> list[Operand]:
    return [Operand(name=f"y{i}", role=role, shape="", dtype="same as input") for i, role in enumerate(roles)]  # type: ignore[arg-type]


def generated_test(
    op: OpSpec, multiple: int = 1, outputs: tuple[str, ...] = ("full",), **changes: object
) -> str:
    return unit_test_file(
        kernel_profile(op),
        signature(op, outputs),
        conventions(**changes),
        reference_in_test(op, "torch_ref"),
        {"n_cols": multiple},
    )


def test_module_without_parameters_is_only_a_forward() -> None:
    assert module_file(kernel_profile(RELU_SQUARED), signature(RELU_SQUARED), conventions()) == snapshot('''\
import torch.nn as nn

from mini_kernel.ops import LigerReLUSquaredFunction


class LigerReLUSquared(nn.Module):
    """y = max(x, 0)²"""

    def forward(self, x):
        return LigerReLUSquaredFunction.apply(x)
''')


def test_module_owns_parameters_and_scalars_and_shows_them() -> None:
    assert module_file(
        kernel_profile(SCALED), signature(SCALED), conventions(ops_import="submodule")
    ) == snapshot('''\
import torch
import torch.nn as nn

from mini_kernel.ops.scaled_tanh import LigerScaledTanhFunction


class LigerScaledTanh(nn.Module):
    """y = w tanh(α x)"""

    def __init__(self, hidden_size, alpha=0.5):
        super().__init__()
        self.hidden_size = hidden_size
        self.alpha = alpha
        self.weight = nn.Parameter(torch.ones(hidden_size))

    def forward(self, x):
        return LigerScaledTanhFunction.apply(x, self.weight, self.alpha)

    def extra_repr(self):
        return f"hidden_size={self.hidden_size}, alpha={self.alpha}"
''')


def test_functional_puts_defaults_last_and_calls_in_the_kernels_order() -> None:
    profile = kernel_profile(GATE)
    mixed = Signature.of(profile, ["a", "cap", "b"], operands("full"))
    assert functional_code(profile, mixed) == (
        "def liger_soft_gate(a, b, cap: float = 30.0):\n    return LigerSoftGateFunction.apply(a, cap, b)\n"
    )


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
@pytest.mark.parametrize("outputs", [("full",), ("row",), ("full", "full")])
def test_generated_test_is_python_that_compares_with_the_reference_alone(
    op: OpSpec, outputs: tuple[str, ...]
) -> None:
    text = generated_test(op, outputs=outputs)
    tests = [
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    assert [test.name.rsplit("_", 1)[-1] for test in tests] == ["correctness", "functional", "contiguous"]
    for test in tests:
        body = ast.unparse(test)
        assert "torch_ref" in body  # never Liger against Liger
        assert "backward" in body


def test_every_gradient_is_compared_and_no_other() -> None:
    compared = {
        op.name: {
            name
            for name in ("x", "a", "b", "weight", "target", "mask")
            if f'extra_info="[{name}.grad]"' in generated_test(op)
        }
        for op in OPS
    }
    assert compared == {
        "relu_squared": {"x"},
        "soft_gate": {"a", "b"},
        "scaled_tanh": {"x", "weight"},
        "masked_loss": {"x"},
    }


def test_old_helper_is_called_without_extra_info() -> None:
    assert "extra_info" not in generated_test(RELU_SQUARED, allclose_extra_info=False)


def test_functional_test_uses_a_scalar_other_than_the_default_on_both_sides() -> None:
    assert generated_test(GATE).count("cap=22.5") == 2
    assert generated_test(SCALED).count("alpha=0.375") == 2


def test_bfloat16_is_skipped_where_the_device_has_none_and_uses_the_profiles_tolerance() -> None:
    text = generated_test(RELU_SQUARED)
    assert "skipif(not supports_bfloat16()" in text
    assert "(torch.float32, 1e-5, 1e-5)" in text


def test_shapes_are_ones_that_the_op_accepts() -> None:
    text = generated_test(RELU_SQUARED, multiple=2)
    assert "(1, 1, 1024)" in text
    assert "1023" not in text
    assert "1023" in generated_test(RELU_SQUARED)


def test_integer_and_boolean_inputs_are_made_as_such() -> None:
    text = generated_test(MASKED_LOSS, outputs=("row",))
    assert "_target = torch.randint(0, shape[-1], shape[:-1], device=device)" in text
    assert "_mask = torch.rand(shape, device=device) > 0.5" in text


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
@pytest.mark.parametrize("api", ["functions", "sweeps", "builders"])
def test_benchmark_script_speaks_the_checkouts_api(api: str, op: OpSpec) -> None:
    text = benchmark_file(
        kernel_profile(op), signature(op), conventions(api), reference_in_test(op, "torch_ref")
    )
    tree = ast.parse(text)
    imported = {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    marks = {"functions": "_test_memory", "sweeps": "run_speed_benchmark", "builders": "build_speed_bench_fn"}
    assert marks[api] in imported
    assert not imported & {mark for name, mark in marks.items() if name != api}
    assert '"speed"' in text
    assert '"memory"' in text
    # module level runs on import: no work there but imports, definitions and the guard
    assert all(
        isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.Assign | ast.Expr | ast.If)
        for node in tree.body
    )


def test_old_sweep_takes_bytes_per_token_and_the_newer_one_a_probe() -> None:
    def script(**changes: object) -> str:
        return benchmark_file(
            kernel_profile(GATE),
            signature(GATE),
            conventions("sweeps", **changes),
            reference_in_test(GATE, "torch_ref"),
        )

    assert "kernel_bytes_per_token=" in script(bytes_per_token_sweep=True)
    assert "probe_seq_len=" in script(bytes_per_token_sweep=False)


@pytest.mark.parametrize("name", ["x; import os", "class", "ünder", "a b", "", "x\ny"])
def test_name_that_is_no_identifier_never_reaches_a_file(name: str) -> None:
    profile = kernel_profile(RELU_SQUARED).model_copy(update={"functional_name": name})
    with pytest.raises(ValueError, match="can't be used as a Python name"):
        Signature.of(profile, ["x"], operands("full"))


def test_kernel_that_takes_an_argument_the_op_does_not_name_is_an_error() -> None:
    with pytest.raises(ValueError, match="the kernel takes x, y but the op names x"):
        Signature.of(kernel_profile(RELU_SQUARED), ["x", "y"], operands("full"))


def test_summary_can_not_end_the_docstring() -> None:
    op = RELU_SQUARED.model_copy(update={"summary": '"""\nimport os\\'})
    text = module_file(kernel_profile(op), signature(op), conventions())
    assert len(ast.parse(text).body) == 3
    assert docstring_text('a "b"\n c\\') == "a 'b' c\\\\"


@pytest.mark.parametrize(
    ("value", "code"),
    [(0.5, "0.5"), (float("inf"), 'float("inf")'), (-3, "-3"), (True, "True"), ("mean", "'mean'")],
)
def test_scalar_values_are_written_as_code(value: object, code: str) -> None:
    assert literal(value) == code  # type: ignore[arg-type]


def test_other_value_stays_near_the_default_and_flags_stay() -> None:
    assert other_value(ScalarSpec(name="p", default=0.0)) == "0.125"
    assert other_value(ScalarSpec(name="p", default=-2.0)) == "-1.5"
    assert other_value(ScalarSpec(name="p", default=2)) is None
    assert other_value(ScalarSpec(name="p", default=2.0, constexpr=True)) is None


def test_reference_keeps_its_imports_and_loses_only_its_name() -> None:
    source = (
        "from __future__ import annotations\nimport math\nimport torch\nfrom torch import nn\n\nSCALE = math.sqrt(2)\n\n\n"
        "def act(x, act=None):\n    return helper(x, act=act) + torch.act + act(x)\n\n\ndef helper(x, act): return x * SCALE\n"
    )
    found = reference_in_test(OpSpec(name="act", entry="act", source=source), "torch_act")
    assert found.future == ("from __future__ import annotations",)
    assert found.imports == ("import math", "from torch import nn")
    assert found.code.startswith("SCALE = math.sqrt(2)")
    assert "def torch_act(x" in found.code
    assert "torch.act" in found.code
    assert "helper(x, act=" in found.code


def test_constructor_arguments_of_a_reference_module_are_found() -> None:
    found = reference_in_test(SCALED, "TorchScaledTanh")
    assert (found.required, found.accepted) == (("dim",), ("dim", "alpha"))


def test_reference_that_does_not_parse_is_an_error_with_its_line() -> None:
    with pytest.raises(ValueError, match="line 2"):
        reference_in_test(OpSpec(name="bad", entry="bad", source="x = 1\ndef (:\n"), "torch_bad")


def test_scalar_that_is_built_into_the_kernel_is_offered_nowhere() -> None:
    built_in = Signature.of(kernel_profile(GATE), ["a", "b"], operands("full"))
    assert functional_code(kernel_profile(GATE), built_in).startswith("def liger_soft_gate(a, b):")
    assert "self.cap" not in module_file(kernel_profile(GATE), built_in, conventions())


def test_kernel_that_lacks_a_tensor_is_an_error() -> None:
    with pytest.raises(ValueError, match="the kernel takes a but the op names a, b, cap"):
        Signature.of(kernel_profile(GATE), ["a"], operands("full"))


def test_integer_results_take_no_part_in_the_backward() -> None:
    outputs = [*operands("full"), Operand(name="index", role="full", shape="", dtype="int64")]
    mixed = Signature.of(kernel_profile(RELU_SQUARED), ["x"], outputs)
    text = unit_test_file(
        kernel_profile(RELU_SQUARED), mixed, conventions(), reference_in_test(RELU_SQUARED, "torch_ref"), {}
    )
    ast.parse(text)
    assert text.count("torch.equal(torch_part, liger_part)") == 3
    assert text.count("liger_output = [part for part in liger_output if part.is_floating_point()]") == 3
