"""Triton's interpreter, repaired, so that a kernel computes on a CPU what it computes on a GPU.

As shipped (3.6 to 3.9) it does arithmetic on the bit patterns of bfloat16, truncates where hardware rounds to nearest
even, leaves Python floats unwrapped, has no libdevice, and can neither autotune nor count multiprocessors. Each repair
has a probe that says whether this Triton still needs it. What it can't show stays so: races, launch limits, speed.

This file imports nothing of ours: it is loaded by its path inside a target's environment. Call `repair()` with
TRITON_INTERPRET=1 set and before the target's modules are imported.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.util
import math
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime import autotuner, interpreter
from triton.runtime.interpreter import (
    InterpreterBuilder,
    ReduceOps,
    ScanOps,
    TensorHandle,
    interpreter_builder,
)

INTERPRETED_SM_COUNT = 4  # more than one, so that reductions over programs are exercised


@dataclass(frozen=True)
class Repair:
    """One gap of the shipped interpreter. `needed` tries the unrepaired interpreter; `apply` patches it."""

    name: str
    why: str
    needed: Callable[[], bool]
    apply: Callable[[], None]


def repair() -> None:
    """Apply every repair; a second call does nothing."""
    if getattr(interpreter, "_liger_bot_repaired", False):
        return
    for each in REPAIRS:
        each.apply()
    # A GPU computes inf and NaN without a word; so does a repaired interpreter.
    np.seterr(all="ignore")
    interpreter._liger_bot_repaired = True  # type: ignore[attr-defined]


# --- bfloat16 --------------------------------------------------------------------------------------------------------


def widen(bits: np.ndarray) -> np.ndarray:
    """bfloat16 bit patterns (uint16) to float32, exactly."""
    return (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow(values: np.ndarray) -> np.ndarray:
    """float32 to bfloat16 bit patterns (uint16), rounding to nearest even; NaN stays NaN."""
    values = np.asarray(values, dtype=np.float32)
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)


def _is_bf16(handle: TensorHandle) -> bool:
    return handle.dtype.scalar == tl.bfloat16


def _wide(handle: TensorHandle) -> TensorHandle:
    return TensorHandle(widen(handle.data), tl.float32) if _is_bf16(handle) else handle


def _back(data: np.ndarray) -> TensorHandle:
    return TensorHandle(narrow(data), tl.bfloat16)


def _through_float32(original: Callable[..., TensorHandle], count: int) -> Callable[..., TensorHandle]:
    """Wrap a builder method whose first `count` arguments are handles: bfloat16 goes through float32 and back."""

    @functools.wraps(original)
    def method(self: InterpreterBuilder, *args: Any, **kwargs: Any) -> TensorHandle:
        if not any(_is_bf16(arg) for arg in args[:count]):
            return original(self, *args, **kwargs)
        result = original(self, *(_wide(arg) for arg in args[:count]), *args[count:], **kwargs)
        if result.data.dtype == np.bool_:  # a comparison
            return TensorHandle(result.data, tl.int1)
        return _back(result.data)

    return method


def _bf16_arithmetic() -> None:
    for name, count in {
        "binary_op": 2,
        "unary_op": 1,
        "create_erf": 1,
        "create_rsqrt": 1,
        "create_fma": 3,
        "create_clampf": 3,
    }.items():
        setattr(InterpreterBuilder, name, _through_float32(getattr(InterpreterBuilder, name), count))

    original_sum, original_min_max = ReduceOps.sum, ReduceOps.min_max

    def in_float32(reduce: Callable[..., Any], self: Any, argument: tl.tensor, *args: Any) -> Any:
        """Reduce in float32 and round once. A GPU rounds each pairwise partial sum: at least as inexact, never equal."""
        if not isinstance(argument, tl.tensor) or argument.dtype != tl.bfloat16:
            return reduce(self, argument, *args)
        wide = self.to_tensor(widen(argument.handle.data), tl.float32)
        results = reduce(self, wide, *args)
        parts = list(results) if isinstance(results, list | tuple) else [results]
        rounded = [
            self.to_tensor(narrow(r.handle.data).reshape(r.shape or ()), tl.bfloat16)
            if r.dtype == tl.float32
            else r
            for r in parts
        ]
        return type(results)(rounded) if isinstance(results, list | tuple) else rounded[0]

    def min_max(self: ReduceOps, input: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A002 - Triton's name
        first = input[0] if isinstance(input, tuple) else input
        return in_float32(functools.partial(original_min_max, **kwargs), self, first, *args)

    ReduceOps.sum = lambda self, input: in_float32(original_sum, self, input)  # noqa: A006
    ReduceOps.min_max = min_max
    original_cumsum, original_cumprod = ScanOps.cumsum, ScanOps.cumprod
    ScanOps.cumsum = lambda self, input: in_float32(original_cumsum, self, input)  # noqa: A006
    ScanOps.cumprod = lambda self, input: in_float32(original_cumprod, self, input)  # noqa: A006

    original_dot = InterpreterBuilder.create_dot

    def create_dot(
        self: InterpreterBuilder, a: TensorHandle, b: TensorHandle, d: TensorHandle, *rest: Any
    ) -> TensorHandle:
        return original_dot(self, _wide(a), _wide(b), d, *rest)

    InterpreterBuilder.create_dot = create_dot  # pyright: ignore[reportAttributeAccessIssue]

    original_rmw = InterpreterBuilder.create_atomic_rmw

    def create_atomic_rmw(
        self: InterpreterBuilder, op: Any, ptr: Any, val: TensorHandle, mask: TensorHandle, *rest: Any
    ) -> TensorHandle:
        if not _is_bf16(val) or not str(op).endswith("FADD"):
            return original_rmw(self, op, ptr, val, mask, *rest)
        pointers, values, masks = (np.asarray(a) for a in np.broadcast_arrays(ptr.data, val.data, mask.data))
        before = np.zeros(values.shape, np.uint16)
        native, here = interpreter._interpreter, np.ones(1, bool)
        for index in np.ndindex(values.shape):  # one by one: two lanes may add to one address
            if masks[index]:
                address = np.ascontiguousarray(pointers[index].reshape(1))
                old = native.load(address, here, np.zeros(1, np.uint16), np.dtype(np.uint16))
                before[index] = old[0]
                native.store(address, narrow(widen(old) + widen(values[index].reshape(1))), here)
        return TensorHandle(before, val.dtype.scalar)

    InterpreterBuilder.create_atomic_rmw = create_atomic_rmw  # pyright: ignore[reportAttributeAccessIssue]


def _bf16_arithmetic_needed() -> bool:
    one_and_half = TensorHandle(narrow(np.array([1.5], np.float32)), tl.bfloat16)
    return widen(interpreter_builder.create_fadd(one_and_half, one_and_half).data)[0] != 3.0


def _bf16_cast() -> None:
    original_cast, original_fp_to_fp = InterpreterBuilder.cast_impl, InterpreterBuilder.create_fp_to_fp

    def cast(
        self: InterpreterBuilder,
        src: TensorHandle,
        dst_type: Any,
        original: Callable[..., TensorHandle],
        *rest: Any,
    ) -> TensorHandle:
        source, destination = src.dtype.scalar, dst_type.scalar
        if tl.bfloat16 not in (source, destination) or "fp8" in source.name or "fp8" in destination.name:
            return original(self, src, dst_type, *rest)
        wide = _wide(src)
        if destination == tl.bfloat16:
            return src if source == tl.bfloat16 else _back(wide.data.astype(np.float32))
        if destination == tl.float32:
            return wide
        return TensorHandle(wide.data.astype(interpreter._get_np_dtype(destination)), destination)

    InterpreterBuilder.cast_impl = lambda self, src, dst_type: cast(self, src, dst_type, original_cast)
    InterpreterBuilder.create_fp_to_fp = lambda self, src, dst_type, rounding: cast(  # pyright: ignore[reportAttributeAccessIssue]
        self, src, dst_type, original_fp_to_fp, rounding
    )


def _bf16_cast_needed() -> bool:
    value = TensorHandle(
        np.array([1.0059], np.float32), tl.float32
    )  # nearest bfloat16 is 1.0078125, truncated 1.0
    return interpreter_builder.cast_impl(value, tl.bfloat16).data[0] != narrow(value.data)[0]


# --- arguments -------------------------------------------------------------------------------------------------------


def _float_arguments() -> None:
    original = interpreter._implicit_cvt

    def convert(argument: Any) -> Any:
        """A Python float reaches a compiled kernel as an fp32 scalar; `.to()` must work on it here too."""
        if isinstance(argument, float):
            return tl.tensor(TensorHandle(np.array([argument], np.float32), tl.float32), tl.float32)
        return original(argument)

    interpreter._implicit_cvt = convert


def _float_arguments_needed() -> bool:
    return not isinstance(interpreter._implicit_cvt(1.5), tl.tensor)


# --- scalars as Python integers --------------------------------------------------------------------------------------


def _index() -> None:
    original = interpreter._patch_lang_tensor

    @functools.wraps(original)
    def patch(tensor: Any, *args: Any) -> Any:
        """Done anew for every launch, so what it sets is replaced each time (and taken back by its own scope)."""
        scope = original(tensor, *args)
        tensor.__index__ = lambda self: int(self.handle.data.squeeze())
        return scope

    interpreter._patch_lang_tensor = patch


def _index_needed() -> bool:
    class Stand:
        """Takes the patches that `tl.tensor` gets."""

        handle = TensorHandle(np.array([3], np.int32), tl.int32)

        def set_attr(self, owner: Any, name: str, value: Any) -> None:
            setattr(owner, name, value)

    try:
        interpreter._patch_lang_tensor(Stand, Stand())  # type: ignore[arg-type]
        return Stand().__index__() != 3  # type: ignore[attr-defined]
    except TypeError:
        return True


# --- libdevice -------------------------------------------------------------------------------------------------------

_UNARY: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in ("ceil", "cos", "cosh", "exp", "exp2", "expm1", "floor", "log", "log10", "log1p", "log2",
                                            "rint", "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "cbrt", "signbit")},
    "abs": np.abs, "fabs": np.abs, "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh,
    "atan": np.arctan, "atanh": np.arctanh, "exp10": lambda x: np.power(10.0, x), "nearbyint": np.rint, "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcp_rn": lambda x: 1 / x, "sqrt_rn": np.sqrt, "saturatef": lambda x: np.clip(x, 0, 1),
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),  # half away from zero, as CUDA's round
    "erf": np.vectorize(math.erf, otypes=[float]), "erfc": np.vectorize(math.erfc, otypes=[float]),
    "lgamma": np.vectorize(math.lgamma, otypes=[float]), "tgamma": np.vectorize(math.gamma, otypes=[float]),
    "normcdf": np.vectorize(lambda x: 0.5 * math.erfc(-x / math.sqrt(2)), otypes=[float]),
    "fast_expf": np.exp, "fast_logf": np.log, "fast_log2f": np.log2, "fast_log10f": np.log10, "fast_sinf": np.sin,
    "fast_cosf": np.cos, "fast_tanf": np.tan, "fast_tanhf": np.tanh, "fast_exp10f": lambda x: np.power(10.0, x),
}  # fmt: skip
_BINARY: dict[str, Callable[..., Any]] = {
    "atan2": np.arctan2, "copysign": np.copysign, "fmod": np.fmod, "hypot": np.hypot, "pow": np.power, "remainder": lambda x, y: x - y * np.rint(x / y),
    "div_rn": np.divide, "fast_dividef": np.divide, "fast_powf": np.power, "add_rn": np.add, "sub_rn": np.subtract, "mul_rn": np.multiply,
    "fdim": lambda x, y: np.maximum(x - y, 0), "nextafter": np.nextafter,
}  # fmt: skip
_TERNARY: dict[str, Callable[..., Any]] = {
    "fma": lambda x, y, z: x * y + z,
    "fma_rn": lambda x, y, z: x * y + z,
}
_PREDICATES: dict[str, Callable[..., Any]] = {
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinited": np.isfinite,
    "finitef": np.isfinite,
}


def _libdevice_function(
    name: str, compute: Callable[..., Any], *, predicate: bool
) -> Callable[..., tl.tensor]:
    def function(*args: Any, **_ignored: Any) -> tl.tensor:
        tensors = [arg for arg in args if isinstance(arg, tl.tensor)]
        dtype = next((t.dtype for t in tensors if t.dtype.is_floating()), tl.float32)
        # Computed one precision up and rounded once: libdevice is within an ulp or two of that.
        data = [
            _wide(arg.handle).data.astype(np.float64)
            if isinstance(arg, tl.tensor)
            else np.float64(getattr(arg, "value", arg))
            for arg in args
        ]
        result = np.asarray(compute(*data))
        shape = list(np.broadcast_shapes(*(tuple(t.shape) for t in tensors))) if tensors else []
        result_dtype = tl.int32 if predicate else dtype
        stored = (
            narrow(result.astype(np.float32))
            if result_dtype == tl.bfloat16
            else result.astype(interpreter._get_np_dtype(result_dtype))
        )
        handle = TensorHandle(stored.reshape(shape or (1,)), result_dtype)
        return tl.tensor(handle, tl.block_type(result_dtype, shape) if shape else result_dtype)

    function.__name__ = name
    return function


def _libdevice_modules() -> list[types.ModuleType]:
    names = (
        "triton.language.extra.libdevice",
        "triton.language.extra.cuda.libdevice",
        "triton.language.extra.hip.libdevice",
    )
    found = []
    for name in names:
        try:
            found.append(importlib.import_module(name))
        except ImportError:  # a build without that vendor
            continue
    return found


def _libdevice() -> None:
    for module in _libdevice_modules():
        for table, predicate in ((_UNARY, False), (_BINARY, False), (_TERNARY, False), (_PREDICATES, True)):
            for name, compute in table.items():
                setattr(module, name, _libdevice_function(name, compute, predicate=predicate))


def _libdevice_needed() -> bool:
    argument = tl.tensor(TensorHandle(np.array([4.0], np.float32), tl.float32), tl.float32)
    try:
        return not isinstance(
            importlib.import_module("triton.language.extra.libdevice").rsqrt(argument), tl.tensor
        )
    except Exception:  # noqa: BLE001 - however it fails, it does not work as shipped
        return True


# --- host side -------------------------------------------------------------------------------------------------------


def _autotune() -> None:
    def run(self: autotuner.Autotuner, *args: Any, **kwargs: Any) -> Any:
        """Every configuration computes the same; timing them in an interpreter says nothing: take the first."""
        config = self.configs[0]
        self.best_config = config
        if config.pre_hook is not None:
            config.pre_hook(
                {**dict(zip(self.arg_names, args, strict=False)), **kwargs, **config.all_kwargs()}
            )
        return self.fn.run(*args, **kwargs, **config.all_kwargs())

    autotuner.Autotuner.run = run


def _autotune_needed() -> bool:
    try:
        return not triton.runtime.driver.active
    except RuntimeError:  # "0 active drivers"
        return True


def _sm_count() -> None:
    if torch.cuda.is_available():
        return
    properties = types.SimpleNamespace(
        multi_processor_count=INTERPRETED_SM_COUNT,
        name="Triton interpreter",
        major=9,
        minor=0,
        total_memory=16 * 1024**3,
        warp_size=32,
    )
    torch.cuda.get_device_properties = lambda *_args, **_kwargs: properties


def _sm_count_needed() -> bool:
    try:
        return not torch.cuda.get_device_properties(0).multi_processor_count
    except (RuntimeError, AssertionError):  # no driver, or a build without CUDA
        return True


class _AfterImport(importlib.abc.MetaPathFinder):
    """Sets attributes of a module right after it has been imported for the first time."""

    def __init__(self, attributes: dict[str, dict[str, Any]]) -> None:
        self.attributes = attributes

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:  # noqa: ARG002 - importlib's signature
        if fullname not in self.attributes:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            sys.meta_path.insert(0, self)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            for name, value in self.attributes[fullname].items():
                if hasattr(module, name):
                    setattr(module, name, value)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _supports_bfloat16() -> None:
    """The repaired interpreter computes bfloat16; a target's own test helper would skip those tests on a CPU."""
    sys.meta_path.insert(0, _AfterImport({"test.utils": {"supports_bfloat16": lambda: True}}))


REPAIRS = (
    Repair(
        "bf16_arithmetic",
        "bfloat16 is kept as uint16 and added, compared and summed as such",
        _bf16_arithmetic_needed,
        _bf16_arithmetic,
    ),
    Repair(
        "bf16_cast",
        "float32 to bfloat16 truncates; hardware rounds to nearest even",
        _bf16_cast_needed,
        _bf16_cast,
    ),
    Repair(
        "float_arguments",
        "a Python float argument stays a Python float, without `.to`",
        _float_arguments_needed,
        _float_arguments,
    ),
    Repair(
        "index", "range() over an argument asks NumPy 2.5 for what it no longer does", _index_needed, _index
    ),
    Repair("libdevice", "every libdevice function returns None or raises", _libdevice_needed, _libdevice),
    Repair("autotune", "autotuning needs an active driver", _autotune_needed, _autotune),
    Repair("sm_count", "torch.cuda.get_device_properties raises without a GPU", _sm_count_needed, _sm_count),
    Repair("supports_bfloat16", "test helpers skip bfloat16 on a CPU", lambda: True, _supports_bfloat16),
)
