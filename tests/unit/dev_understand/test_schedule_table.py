"""The schedules that a derivation weighs, and what is said of the compiled ones."""

from __future__ import annotations

from typing import Any

import pytest

from agents.catalog.lookup import catalog
from agents.dev.schedule_table import Compiled, ScheduleTable, compiled_rows, considered, problems
from kernels.derive import derive
from runners.protocol import Gate, Measurement, Outcome, Verdict
from tests.contract.kernels.catalog_cases import trace_source

CHOSEN: dict[str, Any] = {
    "kernel": "_op_backward_kernel",
    "schedule": "row_block",
    "num_warps": 16,
    "chosen": True,
}


def row(**values: Any) -> Compiled:
    plain: dict[str, Any] = {
        "at": "16384 columns",
        "arch": "sm_90",
        "registers": 40,
        "shared_bytes": 0,
        "occupancy": 0.5,
    }
    return Compiled.model_validate({"spill_bytes": 0} | plain | CHOSEN | values)


def verdict(*kernels: tuple[str, int, bool]) -> Verdict:
    measurements = []
    for kernel, warps, alternative in kernels:
        tags = {"kernel": kernel, "arch": "sm_90", "shape": "4096 columns", "num_warps": str(warps)}
        tags |= {"alternative": "yes"} if alternative else {}
        for name, value in (
            ("registers", 32),
            ("spill", 0),
            ("shared memory", 64),
            ("theoretical occupancy", 0.75),
        ):
            measurements.append(
                Measurement(name=f"{name} {kernel} 4096 columns", unit="", median=value, tags=tags)
            )
    return Verdict(
        check="compile/sm_90",
        gate=Gate.compile,
        outcome=Outcome.passed,
        summary="fine",
        measurements=measurements,
    )


@pytest.mark.parametrize(
    ("name", "schedules"),
    [
        ("softmax", [("persistent_row", "persistent_row"), ("looped_row", "looped_row")]),
        ("rms_norm", [("persistent_row", "row_block"), ("looped_row", "looped_row")]),
        ("relu_squared", [("flat", "flat")]),
    ],
)
def test_rows_in_blocks_are_weighed_where_they_make_other_kernels(
    name: str, schedules: list[tuple[str, str]]
):
    traced = trace_source(catalog().ops[name].op)
    found = considered(traced, derive(traced))
    assert [one.chosen for one in found] == [True, False][: len(found)]
    kernels = [(f"_{name}_forward_kernel", f"_{name}_backward_stage_1_kernel") for _ in found]
    kernels[0] = (kernels[0][0], f"_{name}_backward_kernel")
    if name == "softmax":
        kernels[-1] = kernels[0]
    assert [
        tuple(one.schedule_of(k) for k in pair) for one, pair in zip(found, kernels, strict=True)
    ] == schedules


def test_measurements_become_rows_with_their_schedule_and_without_helpers():
    traced = trace_source(catalog().ops["softmax"].op)
    chosen, blocks = considered(traced, derive(traced))
    own = compiled_rows(
        chosen,
        [
            verdict(
                ("_softmax_forward_kernel", 8, False),
                ("_softmax_forward_kernel", 16, True),
                ("_sum_parts_kernel", 8, False),
            )
        ],
        [],
    )
    assert [(r.schedule, r.num_warps, r.chosen) for r in own] == [
        ("persistent_row", 8, True),
        ("persistent_row", 16, False),
    ]
    assert (own[0].registers, own[0].shared_bytes, own[0].occupancy) == (32, 64, 0.75)
    others = compiled_rows(blocks, [verdict(("_softmax_forward_kernel", 8, False))], own)
    assert [(r.schedule, r.chosen) for r in others] == [("looped_row", False)]
    assert compiled_rows(blocks, [verdict(("_softmax_forward_kernel", 8, False))], others) == []


def test_the_verdict_names_what_spills_and_what_would_not():
    assert ScheduleTable().spill_verdict() == ""
    assert ScheduleTable(rows=[row()]).spill_verdict() == "Nothing spills under the chosen schedules."
    spills = row(spill_bytes=96)
    stage = {"kernel": "_op_backward_stage_1_kernel", "schedule": "looped_row", "chosen": False}
    other = row(**stage, num_warps=8)
    elsewhere = row(**stage, num_warps=4, arch="sm_80")
    assert ScheduleTable(rows=[spills, other, elsewhere]).spill_verdict() == (
        "_op_backward_kernel spills 96 B at 16384 columns for sm_90; looped_row with 8 warps would not."
    )
    assert "so does every other" in ScheduleTable(rows=[spills, elsewhere]).spill_verdict()


def test_lines_hold_every_architecture_and_begin_with_the_chosen():
    table = ScheduleTable(rows=[row(chosen=False, num_warps=4), row(), row(arch="sm_80")])
    assert [key[2] for key in table.lines()] == [16, 4]
    assert list(table.lines()[("_op_backward_kernel", "row_block", 16, "16384 columns")]) == [
        "sm_90",
        "sm_80",
    ]


def test_nothing_measured_is_told():
    failed = Verdict(
        check="compile/sm_90", gate=Gate.compile, outcome=Outcome.failed, summary="no kernel was launched"
    )
    assert problems([failed]) == "no kernel was launched"
    assert problems([failed, verdict(("_softmax_forward_kernel", 8, False))]) == ""
    assert problems([]) == "the runner left no result"
