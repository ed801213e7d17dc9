"""What is read from a compiled kernel: occupancy, narrow offsets, launch limits."""

from __future__ import annotations

import pytest

from runners.compile_only import Compiled, _hard_problems
from runners.confined.compile_kernels import F64_ARITHMETIC, overflowing_offsets
from runners.occupancy import occupancy


@pytest.mark.parametrize(
    ("arch", "registers", "shared", "threads", "blocks", "limit"),
    [
        ("sm_90", 32, 0, 256, 8, "registers"),
        ("sm_90", 16, 0, 128, 16, "threads"),
        ("sm_90", 255, 0, 512, 0, "registers"),
        ("sm_90", 32, 100 * 1024, 128, 2, "shared memory"),
        ("sm_90", 32, 230 * 1024, 128, 0, "shared memory"),
        ("sm_80", 32, 100 * 1024, 128, 1, "shared memory"),
        ("sm_90", 16, 0, 32, 32, "blocks"),
        ("gfx942", 32, 0, 256, 8, "threads"),
        ("gfx942", 256, 0, 256, 2, "registers"),
    ],
)
def test_occupancy(arch: str, registers: int, shared: int, threads: int, blocks: int, limit: str) -> None:
    found = occupancy(arch, registers=registers, shared=shared, threads=threads)
    assert (found.blocks, found.limit) == (blocks, limit)


ROW_THEN_STRIDE = """
    ld.param.b32 %r9, [k_param_2];
    mov.u32     %r1, %ctaid.x;
    cvt.s64.s32 %rd1, %r1;
    cvt.s64.s32 %rd9, %r9;
    mul.lo.s64  %rd2, %rd1, %rd9;
    shl.b64     %rd3, %rd2, 1;
"""
NARROW_PRODUCT = """
    ld.param.b32 %r9, [k_param_2];
    mov.u32     %r1, %ctaid.x;
    mul.lo.s32  %r2, %r1, %r9;
    mul.wide.s32 %rd3, %r2, 2;
"""
NARROW_SHIFT = """
    mov.u32     %r1, %ctaid.x;
    shl.b32     %r2, %r1, 12;
    mov.u32     %r5, %tid.x;
    or.b32      %r3, %r2, %r5;
    mul.wide.s32 %rd3, %r3, 2;
"""
NARROW_MAD = """
    ld.param.b32 %r9, [k_param_2];
    mov.u32     %r1, %ctaid.x;
    mad.lo.s32  %r2, %r1, %r9, %r4;
    mad.lo.s32  %r3, %r1, %r9, 7;
"""
COLUMN_TILE = """
    mov.u32     %r1, %ctaid.y;
    shl.b32     %r2, %r1, 10;
    mul.wide.u32 %rd1, %r2, 2;
"""
ROWS_A_PROGRAM = """
    mov.u32     %r1, %ctaid.x;
    shl.b32     %r2, %r1, 1;
    mul.wide.u32 %rd1, %r2, 4;
    mul.wide.u32 %rd2, %r2, 8192;
"""


@pytest.mark.parametrize(
    ("ptx", "found"),
    [
        (ROW_THEN_STRIDE, 0),
        (NARROW_PRODUCT, 1),
        (NARROW_SHIFT, 1),
        (NARROW_MAD, 1),
        (COLUMN_TILE, 0),
        (ROWS_A_PROGRAM, 0),
    ],
    ids=[
        "row widened first",
        "narrow product",
        "narrow shift",
        "narrow mad",
        "column tile",
        "rows a program",
    ],
)
def test_offsets_that_overflow_at_this_launch_are_found(ptx: str, found: int) -> None:
    """A million rows of 4096 columns: only what is really too large for 32 bits, not every 32-bit product."""
    assert len(overflowing_offsets(ptx, (2**20, 4), 256, [None, None, 4096])) == found


def test_nothing_overflows_at_a_small_launch() -> None:
    assert overflowing_offsets(NARROW_PRODUCT, (1000,), 256, [None, None, 4096]) == []


def test_double_precision_arithmetic_is_told_from_conversion() -> None:
    assert (
        F64_ARITHMETIC.findall(
            "    ld.param.b64 %rd1, [p];\n    cvt.rn.f32.f64 %f1, %fd1;\n    mov.f64 %fd2, %fd1;\n"
        )
        == []
    )
    assert (
        len(
            F64_ARITHMETIC.findall(
                "    mul.f64 %fd1, %fd2, %fd3;\n    @%p1 fma.rn.f64 %fd1, %fd2, %fd3, %fd4;\n"
            )
        )
        == 2
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_warps": 32, "warp_size": 64}, "2048, at most 1024"),
        ({"f64_instructions": 3}, "double precision"),
        ({"overflows": ["mul.lo.s32 …"]}, "32 bits that overflow"),
        ({"shared": 300_000}, "does not fit"),
        ({"error": "CompilationError: no"}, "does not compile"),
        ({}, ""),
    ],
)
def test_hard_problems(changes: dict[str, object], words: str) -> None:
    compiled = Compiled.model_validate(
        {"kernel": "k", "label": "4096 columns", "arch": "sm_90", "registers": 32, **changes}
    )
    found = _hard_problems(compiled)
    assert bool(found) is bool(words)
    assert all(words in problem for problem in found)
