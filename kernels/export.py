"""Export the joint forward and backward graph of a reference at one set of sizes. Imports torch.

The reference is executed here: only in the runner's sandbox.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.fx.traceback as fx_traceback
from torch import nn
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch._subclasses.fake_tensor import DynamicOutputShapeException
from torch.overrides import TorchFunctionMode

from kernels.derivation import Unsupported
from kernels.determined import require_determined
from kernels.graph_reader import Exported
from kernels.op_spec import TensorSpec
from kernels.roles import Roles

Reference = Callable[..., Any] | type[nn.Module] | nn.Module
Scalars = dict[str, float | int | bool | str]
ROWS = "n_rows"  # what "*" is called: the leading axes of every full tensor, flattened


def named_axis(axis: str) -> str:
    return ROWS if axis == "*" else axis


class SourceLines(TorchFunctionMode):
    """Marks every traced operation with the line of the reference that it came from."""

    def __init__(self, filename: str):
        super().__init__()
        self.filename = filename

    def __torch_function__(self, func, types, args=(), kwargs=None):
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != self.filename:
            frame = frame.f_back
        if frame is not None:
            fx_traceback.set_stack_trace([f"line {frame.f_lineno}"])
        return func(*args, **(kwargs or {}))


def export(roles: Roles, reference: Reference, sizes: Mapping[str, int], scalars: Scalars) -> Exported:
    call = roles.bind(reference, sizes, scalars)
    generator = torch.Generator().manual_seed(0)
    tensors = [example(spec, sizes, generator) for spec in roles.op.tensors]
    names = [spec.name for spec in roles.op.tensors]
    n_outputs = 0

    def flat(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        nonlocal n_outputs
        with SourceLines(call.filename):
            result = call(dict(zip(names, args, strict=True)))
        results = tuple(result) if isinstance(result, tuple | list) else (result,)
        if not results:
            raise Unsupported("the reference returns nothing", needed="a reference that returns a tensor")
        for item in results:
            if item is None:
                raise Unsupported(
                    "the reference returns None" + (" among its results" if len(results) > 1 else ""),
                    needed="a `return` with a tensor, or a tuple of tensors",
                )
            if not isinstance(item, torch.Tensor):
                raise Unsupported(
                    f"the reference returns {_a(type(item).__name__)}, not a tensor",
                    needed="a reference that returns tensors only",
                )
        if not any(item.is_floating_point() for item in results):
            kind = str(results[0].dtype).removeprefix("torch.")
            raise Unsupported(
                f"the reference returns {kind} values, which have no gradient",
                needed="a floating-point result",
            )
        n_outputs = len(results)
        # An output may be an input or a view of one; the exporter refuses that, and a kernel writes a new tensor anyway.
        return tuple(item.clone() for item in results)

    try:
        with warnings.catch_warnings(), _quiet_logs(), fx_traceback.preserve_node_meta():
            warnings.simplefilter("ignore")
            module = aot_export_joint_simple(flat, tensors, trace_joint=True, decompositions={})
    except Unsupported:
        raise
    except Exception as error:
        raise _explain(error, call.filename) from error
    require_determined(module.graph)
    differentiable = [t.name for t, v in zip(roles.op.tensors, tensors, strict=True) if v.requires_grad]
    return Exported(module.graph, n_outputs, differentiable)


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """A failed attempt is an answer here; torch would log it with a traceback."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def _a(word: str) -> str:
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"


def _explain(error: Exception, filename: str) -> Unsupported:
    """A tracing failure in words, with the reference's line when the traceback has one."""
    line, frame = None, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == filename:
            line = frame.tb_lineno
        frame = frame.tb_next
    where = f"line {line}" if line else None
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if "mutat" in text.lower():
        return Unsupported(
            "the reference changes one of its inputs in place",
            where=where,
            needed="a function that leaves its inputs alone",
        )
    if "convert all Tensors to FakeTensors" in text:
        return Unsupported(
            "the reference uses a tensor that isn't one of its arguments",
            where=where,
            needed="constants written as numbers, or passed as arguments",
        )
    if isinstance(error, DynamicOutputShapeException):
        return Unsupported(
            f"the shape of the result of {str(error.func).removeprefix('aten.').split('.')[0]} depends on the data",
            where=where,
            needed="shapes known before the run, e.g. torch.where in place of a selection",
        )
    if "data-dependent" in text.lower() or "item()" in text or "DataDependent" in type(error).__name__:
        return Unsupported(
            "the reference's control flow or shapes depend on the data",
            where=where,
            needed="shapes known before the run",
        )
    return Unsupported(f"the reference can't be traced: {type(error).__name__}: {text[:300]}", where=where)


def example(spec: TensorSpec, sizes: Mapping[str, int], generator: torch.Generator) -> torch.Tensor:
    shape = [sizes[named_axis(a)] for a in spec.shape]
    if spec.dtype == "bool":
        return torch.rand(shape, generator=generator) < 0.5
    if spec.dtype == "int64":
        return torch.randint(0, min(sizes.values()), shape, generator=generator)
    # bf16, so that the reference's own casts are visible in the graph.
    value = torch.rand(shape, generator=generator).add_(0.5).to(torch.bfloat16)
    return value.requires_grad_(spec.needs_grad)
