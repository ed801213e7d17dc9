"""What is read from a compiled kernel: occupancy, narrow offsets, launch limits."""

from __future__ import annotations

import pytest

from runners.compile_only import Compiled, _hard_problems
from runners.confined.compile_kernels import F64_ARITHMETIC, narrow_offsets
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


WIDE = """
    mov.u32     %r1, %ctaid.x;
    cvt.s64.s32 %rd1, %r1;
    mul.lo.s64  %rd2, %rd1, %rd9;
    shl.b64     %rd3, %rd2, 1;
    add.s64     %rd4, %rd8, %rd3;
"""
NARROW = """
    mov.u32     %r1, %ctaid.x;
    mul.lo.s32  %r2, %r1, %r9;
    add.s32     %r3, %r2, %r8;
    mul.wide.s32 %rd3, %r3, 2;
    add.s64     %rd4, %rd8, %rd3;
"""
NARROW_BY_SHIFT = """
    mov.u32     %r1, %ctaid.x;
    shl.b32     %r2, %r1, 12;
    or.b32      %r3, %r2, %r8;
    cvt.s64.s32 %rd1, %r3;
    shl.b64     %rd3, %rd1, 2;
"""
PERSISTENT = """
    mov.u32     %r1, %ctaid.x;
    mul.lo.s32  %r2, %r1, %r9;
    cvt.s64.s32 %rd1, %r2;
    mul.lo.s64  %rd2, %rd1, %rd9;
    shl.b64     %rd3, %rd2, 1;
"""


@pytest.mark.parametrize(
    ("ptx", "found"),
    [(WIDE, 0), (NARROW, 1), (NARROW_BY_SHIFT, 1), (PERSISTENT, 0)],
    ids=["wide", "narrow", "narrow by shift", "rows a program"],
)
def test_offsets_made_from_32_bit_products_are_found(ptx: str, found: int) -> None:
    assert narrow_offsets(ptx) == found


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
        ({"narrow_offsets": 2}, "overflow past 2^31"),
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
