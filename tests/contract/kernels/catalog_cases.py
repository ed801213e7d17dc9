"""Cases for the interpreter from ops of the catalog: traced, derived, printed, and the sizes to run them at."""

from __future__ import annotations

import atexit
import functools
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from typing import Any

import pytest

from agents.catalog.lookup import catalog
from kernels.derive import derive
from kernels.module_style import ModuleStyle
from kernels.op_spec import OpSpec
from kernels.printer import call_order, print_module
from kernels.trace import trace
from kernels.traced import TracedOp
from tests.exhaustive import EXHAUSTIVE

# Relative to the largest value of a tensor, beyond twice eager's own error: a few fp32 roundings of a sum of 257 terms.
FP32_TOLERANCE = 2e-6
# bf16 has 8 bits of mantissa: half an ulp is 2^-9 = 2e-3; results and gradients are rounded once, eager's after every op.
BF16_TOLERANCE = 4e-3
OTHER_SIZES = ((3, 2, 7, 5, 3, 4), (1, 4, 3, 3, 2, 5))
ROWS_AND_COLUMNS = ((5, 37), (1, 257))
LEADING = ([5], [1, 2, 1])


@dataclass
class Outcome:
    """What the interpreter found for one op."""

    worst: dict[str, float] = field(default_factory=dict)
    error: str = ""


def sizes(traced: TracedOp, variant: int) -> dict[str, Any]:
    """Odd sizes for every axis: multiples where the reference needs them, more than one leading dimension for "*"."""
    result: dict[str, Any] = {}
    scalars = {s.name: s.default for s in traced.op.scalars}
    rows, columns = ROWS_AND_COLUMNS[variant]
    for position, (axis, multiple) in enumerate(traced.axes.items()):
        size = {"n_rows": rows, "n_cols": columns}.get(axis, OTHER_SIZES[variant][position % 6]) * multiple
        result[axis] = size * int(scalars[traced.tied[axis]]) if axis in traced.tied else size
    if any("*" in t.shape for t in traced.op.tensors):
        result["*"] = LEADING[variant]
        result["n_rows"] = functools.reduce(lambda a, b: a * b, LEADING[variant])
    return result


def trace_source(op: OpSpec) -> TracedOp:
    """Trace a reference of ours and send it through JSON, as the runner does."""
    namespace: dict[str, Any] = {}
    exec(compile(op.source, "<reference>", "exec"), namespace)  # noqa: S102 - our own references
    return TracedOp.model_validate_json(trace(op, namespace[op.entry]).model_dump_json())


def case(
    op: OpSpec, dtype: str = "float32", variants: tuple[int, ...] = (), *, wide_rows: bool = False
) -> dict[str, Any]:
    """variants: of `sizes`; without them both in a thorough run, else one of the two, by the op's name."""
    variants = variants or ((0, 1) if EXHAUSTIVE else (len(op.name) % 2,))
    traced = trace_source(op)
    derivation = derive(traced, wide_rows=wide_rows)
    style = ModuleStyle.standalone(op.name)
    return {
        "op": derivation.op.model_dump(mode="json"),
        "module": print_module(derivation, style),
        "function": style.function_class,
        "call_order": call_order(derivation),
        "sizes": [sizes(traced, v) for v in variants],
        "dtype": dtype,
    }


class Interpreter:
    """One process for all runs of this one; see `interpreted`."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - for as long as the process lives
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.contract.kernels.interpreted"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        atexit.register(self._process.kill)

    def run(self, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(cases) + "\n")
            self._process.stdin.flush()
            results = json.loads(self._process.stdout.readline() or "-1")
        except BaseException:  # a test's time is up: the next one must not read this one's answer
            self._process.kill()
            interpreter.cache_clear()
            raise
        if isinstance(results, int):
            self._errors.seek(0)
            pytest.fail(f"the interpreter died with status {results}: {self._errors.read()[-2000:]}")
        return results


@functools.cache
def interpreter() -> Interpreter:
    return Interpreter()


def run(cases: list[dict[str, Any]]) -> dict[str, Outcome]:
    """Run cases in a process of the interpreter; name -> outcome."""
    return {r["name"]: Outcome(r.get("worst", {}), r.get("error", "")) for r in interpreter().run(cases)}


def run_catalog(names: list[str], dtype: str = "float32") -> dict[str, Outcome]:
    ops = catalog().ops
    return run([case(ops[name].op, dtype) for name in names])


def assert_close(outcome: Outcome, tolerance: float = FP32_TOLERANCE) -> None:
    assert not outcome.error, outcome.error
    assert outcome.worst, "nothing was compared"
    assert max(outcome.worst.values()) <= tolerance, outcome.worst
