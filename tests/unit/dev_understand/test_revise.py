"""What a person may change in a profile, what it does to the rest, and what is refused in one line."""

from __future__ import annotations

import asyncio

import pytest
from inline_snapshot import snapshot

from agents.dev.analysis import derivation_of
from agents.dev.refused import Refused
from agents.dev.revisable import keys
from agents.dev.revise import revise
from agents.dev.understand import understand
from agents.profiles import KernelProfile
from tests.dict_tree import DictTree
from tests.mini_library import mini_library
from tests.unit.dev_understand.tracing_bench import TracingBench

TREE = DictTree(mini_library())
EXPRESSION = "scaled(x, weight, alpha=0.5) = weight * tanh(alpha * x)"


@pytest.fixture(scope="module")
def profile() -> KernelProfile:
    found = asyncio.run(understand(EXPRESSION, None, TREE, TracingBench(), base_sha="abc"))
    assert isinstance(found, KernelProfile)
    return found


async def revised(profile: KernelProfile, bench: TracingBench | None = None, **changes: str) -> KernelProfile:
    found = await revise(
        profile,
        {key.replace("__", "."): value for key, value in changes.items()},
        TREE,
        bench or TracingBench(),
    )
    assert isinstance(found, KernelProfile), found
    return found


async def refused(profile: KernelProfile, changes: dict[str, str]) -> Refused:
    found = await revise(profile, changes, TREE, TracingBench())
    assert isinstance(found, Refused)
    return found


async def test_a_new_name_renames_the_op_its_classes_and_its_files(profile):
    bench = TracingBench()

    found = await revised(profile, bench, operation_name="tanh_gain")

    assert (found.operation_name, found.op.name, found.module_class_name) == (
        "tanh_gain",
        "tanh_gain",
        "MiniTanhGain",
    )
    assert found.files[0].path == "src/mini_kernel/ops/tanh_gain.py"
    assert found.sha256() != profile.sha256()
    assert found.base_sha == "abc"
    assert bench.jobs == []


async def test_a_change_is_marked_as_the_persons_and_keeps_what_the_rules_had_said(profile):
    found = await revised(
        profile,
        closest_existing_kernel="gate",
        tolerances__bf16__rtol="0.04",
        benchmark_x_values_suggestion="512, 1024",
    )

    marked = {d.name: d for d in found.decisions if any(e.kind == "person" for e in d.evidence)}
    assert sorted(marked) == [
        "benchmark_x_values_suggestion",
        "closest_existing_kernel",
        "tolerances.bfloat16.rtol",
    ]
    assert found.tolerances["bfloat16"]["rtol"] == 0.04
    assert found.benchmark_x_values_suggestion == [512, 1024]
    assert next(d.value for d in found.decisions if d.name == "tolerances.bfloat16").endswith("rtol 0.04")


async def test_a_default_is_traced_again_and_reaches_the_module(profile):
    bench = TracingBench()

    found = await revised(profile, bench, alpha="0.25")

    assert [p.default for p in found.module_init_params if p.name == "alpha"] == [0.25]
    assert len(bench.jobs) == 1


async def test_a_vector_becomes_a_full_tensor(profile):
    found = await revised(profile, weight__shape="full")

    assert found.learnable_params == []
    assert [entry.shape for entry in found.forward_inputs] == ["(*, n_cols)", "(*, n_cols)"]
    assert found.tolerances["float32"]["atol"] == 1e-5


async def test_a_tensor_without_gradient_has_no_gradient_formula(profile):
    assert sorted((await revised(profile, weight__needs_grad="false")).gradient_formulas) == ["x"]


async def test_rows_are_split_over_programs_as_asked():
    softmax = await understand("softmax", None, TREE, TracingBench())
    assert isinstance(softmax, KernelProfile)
    assert softmax.rows == "whole"

    split = await revised(softmax, rows="split")

    assert split.rows == "split"
    assert split.sha256() != softmax.sha256()
    assert "parts of a row" in split.grid_description
    _, derivation = derivation_of(split)
    assert derivation.forward_schedule.name == "split_row"
    renamed = await revised(split, operation_name="soft_maximum")
    assert (renamed.rows, renamed.grid_description) == ("split", split.grid_description)
    back = await revised(split, rows="whole")
    assert derivation_of(back)[1].forward_schedule.name == "persistent_row"


async def test_rows_that_no_kernel_reduces_are_not_laid_out_anew(profile):
    found = await refused(profile, {"rows": "split"})
    assert found.reason == "`rows=split` makes no other kernels: this op's rows are laid out so already."


async def test_rows_that_can_not_be_split_say_what_is_missing():
    prefix = await understand("cumsum", None, TREE, TracingBench())
    assert isinstance(prefix, KernelProfile)
    found = await refused(prefix, {"rows": "split"})
    assert "prefix along a row" in found.reason
    assert "the sum of the parts before it" in (found.needed or "")


async def test_changes_add_up_over_several_revisions(profile):
    first = await revised(profile, tolerances__float16__atol="0.01", module_class_name="MiniGain")
    second = await revised(first, alpha="0.75")
    third = await revised(second, operation_name="gain", benchmark_fixed_config__BT="4096")

    assert third.tolerances["float16"]["atol"] == 0.01
    assert third.module_class_name == "MiniGain"
    assert third.op.scalars[0].default == 0.75
    assert third.benchmark_fixed_config["BT"] == 4096
    persons = [d.name for d in third.decisions if any(e.kind == "person" for e in d.evidence)]
    assert sorted(persons) == sorted(
        [
            "tolerances.float16.atol",
            "module_class_name",
            "alpha",
            "operation_name",
            "benchmark_fixed_config.BT",
        ]
    )


async def test_an_answered_question_is_not_asked_again():
    asked = await understand("x * cos(x * beta)", None, TREE, TracingBench())
    assert isinstance(asked, KernelProfile)
    assert len(asked.questions) == 2

    found = await revised(asked, operation_name="cosine_gate", beta="2.0")

    assert found.questions == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"operation_nam": "a"},
            snapshot("`operation_nam` can't be revised. Did you mean `operation_name`?"),
        ),
        ({"tier": "2"}, snapshot("`tier` can't be revised.")),
        ({"traced": "{}"}, snapshot("`traced` can't be revised.")),
        (
            {"operation_name": "Bad Name"},
            snapshot("`operation_name` must be snake_case, 2 to 48 characters; you wrote `Bad Name`."),
        ),
        (
            {"operation_name": "../../x"},
            snapshot("`operation_name` must be snake_case, 2 to 48 characters; you wrote `../../x`."),
        ),
        ({"operation_name": "gate"}, snapshot("This repository already has `gate`.")),
        (
            {"function_class_name": "MiniGain"},
            snapshot("`function_class_name` must be a name that ends in Function; you wrote `MiniGain`."),
        ),
        (
            {"closest_existing_kernel": "nothing_here"},
            snapshot("This repository has no kernel `nothing_here`."),
        ),
        (
            {"tolerances.bfloat16.rtol": "0.5"},
            snapshot("`tolerances.bfloat16.rtol` must be a number above 0 and at most 0.1; you wrote `0.5`."),
        ),
        (
            {"tolerances.float32.atol": "0"},
            snapshot("`tolerances.float32.atol` must be a number above 0 and at most 0.001; you wrote `0`."),
        ),
        (
            {"tolerances.float32.atol": "nan"},
            snapshot(
                "`tolerances.float32.atol` must be a number above 0 and at most 0.001; you wrote `nan`."
            ),
        ),
        (
            {"benchmark_providers": "torch"},
            snapshot(
                "`benchmark_providers` must be liger,torch or liger,torch,torch_compile; you wrote `torch`."
            ),
        ),
        (
            {"benchmark_x_label": "a\nb"},
            snapshot("`benchmark_x_label` must be up to 60 letters, digits and spaces; you wrote `a b`."),
        ),
        ({"alpha": "much"}, snapshot("`alpha` must be a number; you wrote `much`.")),
        ({"alpha": "__import__('os')"}, snapshot("`alpha` must be a number; you wrote `__import__('os')`.")),
        (
            {"x.shape": "1banana"},
            snapshot(
                "`x.shape` must be full, column, row, scalar, or axes such as (*, n_cols); you wrote `1banana`."
            ),
        ),
        (
            {"x.learnable": "true"},
            snapshot(
                "`x.learnable` must be false for `x`: a module owns no tensor with row axes; you wrote `true`."
            ),
        ),
        ({"x.needs_grad": "maybe"}, snapshot("`x.needs_grad` must be true or false; you wrote `maybe`.")),
        (
            {"x.init": "ones"},
            snapshot("`x.init` must be set on a learnable tensor, and `x` is an input; you wrote `ones`."),
        ),
        ({}, snapshot("Give 1 to 20 changes, as key=value.")),
        ({"alpha": "0.5"}, snapshot("Nothing changes: `alpha` is 0.5 already.")),
    ],
)
async def test_a_mistake_is_refused_in_one_line(profile, changes, reason):
    assert (await refused(profile, changes)).reason == reason


async def test_all_changes_are_applied_or_none(profile):
    before = profile.sha256()

    await refused(profile, {"operation_name": "gain", "alpha": "much"})

    assert profile.sha256() == before


async def test_the_keys_of_a_profile_are_listed(profile):
    assert keys(profile) == snapshot(
        [
            "operation_name",
            "module_class_name",
            "function_class_name",
            "functional_name",
            "closest_existing_kernel",
            "rows",
            "tolerances.float32.atol",
            "tolerances.float32.rtol",
            "tolerances.bfloat16.atol",
            "tolerances.bfloat16.rtol",
            "tolerances.float16.atol",
            "tolerances.float16.rtol",
            "benchmark_variable",
            "benchmark_x_label",
            "benchmark_x_values_suggestion",
            "benchmark_providers",
            "benchmark_fixed_config.BT",
            "benchmark_fixed_config.dtype",
            "x.shape",
            "x.needs_grad",
            "x.learnable",
            "x.init",
            "weight.shape",
            "weight.needs_grad",
            "weight.learnable",
            "weight.init",
            "alpha",
            "alpha.constexpr",
        ]
    )
