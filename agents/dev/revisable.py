"""Which keys `/liger revise key=value` may change, what each accepts, and how it changes a profile or its op. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rapidfuzz import process
from rapidfuzz.distance import DamerauLevenshtein

from agents.catalog.known_op import ROLE_SHAPES
from agents.dev.expression_syntax import LARGEST
from agents.dev.naming import CLASS_NAME, is_operation_name
from agents.dev.refused import Mistake
from agents.profiles import KernelProfile
from kernels.op_spec import OpSpec, ScalarSpec, TensorSpec

# The loosest tolerance a person may set: about ten roundings of the dtype; beyond it a test proves nothing.
LOOSEST = {"float32": 1e-3, "bfloat16": 1e-1, "float16": 2e-2}
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32"}
_BENCHMARK_DTYPES = ("torch.bfloat16", "torch.float16", "torch.float32")
_INITS = ("ones", "zeros", "randn", "half")

FieldChange = Callable[[dict[str, Any]], None]
OpChange = Callable[[OpSpec], OpSpec]


@dataclass(frozen=True)
class Change:
    """One accepted change. Exactly one of `field` and `op` is set."""

    key: str
    value: str
    field: FieldChange | None = None
    op: OpChange | None = None


def change(profile: KernelProfile, key: str, value: str) -> Change:
    """Parse one `key=value` against a profile. Raises Mistake in one line."""
    key, value = key.strip(), value.strip()
    for reader in (_field, _tolerance, _benchmark, _tensor, _scalar):
        found = reader(profile, key, value)
        if found is not None:
            return found
    near = process.extract(
        key, keys(profile), scorer=DamerauLevenshtein.normalized_similarity, limit=2, score_cutoff=0.5
    )
    hint = f" Did you mean {' or '.join(f'`{name}`' for name, _, _ in near)}?" if near else ""
    raise Mistake(
        f"`{key[:60]}` can't be revised.{hint}",
        needed="Keys: " + ", ".join(f"`{name}`" for name in keys(profile)),
    )


def keys(profile: KernelProfile) -> list[str]:
    """Every key that this profile accepts, for help and for did-you-mean."""
    fixed = [
        "operation_name",
        "module_class_name",
        "function_class_name",
        "functional_name",
        "closest_existing_kernel",
        "rows",
    ]
    fixed += [f"tolerances.{dtype}.{kind}" for dtype in profile.tolerances for kind in ("atol", "rtol")]
    fixed += [
        "benchmark_variable",
        "benchmark_x_label",
        "benchmark_x_values_suggestion",
        "benchmark_providers",
    ]
    fixed += ["benchmark_fixed_config.BT", "benchmark_fixed_config.dtype"]
    fixed += [
        f"{tensor.name}.{what}"
        for tensor in profile.op.tensors
        for what in ("shape", "needs_grad", "learnable", "init")
    ]
    return fixed + [
        name for scalar in profile.op.scalars for name in (scalar.name, f"{scalar.name}.constexpr")
    ]


def _must(condition: object, key: str, rule: str, value: str) -> None:
    if not condition:
        raise Mistake(f"`{key}` must be {rule}; you wrote `{' '.join(value.split())[:60]}`.")


def _set(name: str, value: Any) -> FieldChange:
    def apply(fields: dict[str, Any]) -> None:
        fields[name] = value

    return apply


def _field(profile: KernelProfile, key: str, value: str) -> Change | None:
    match key:
        case "operation_name":
            _must(is_operation_name(value), key, "snake_case, 2 to 48 characters", value)
            return Change(key, value, op=lambda op: op.model_copy(update={"name": value}))
        case "module_class_name" | "function_class_name":
            _must(CLASS_NAME.fullmatch(value), key, "a class name of letters and digits", value)
            _must(
                key == "module_class_name" or value.endswith("Function"),
                key,
                "a name that ends in Function",
                value,
            )
            other = profile.function_class_name if key == "module_class_name" else profile.module_class_name
            _must(value != other, key, f"different from `{other}`", value)
        case "functional_name":
            _must(is_operation_name(value), key, "snake_case, 2 to 48 characters", value)
        case "rows":
            _must(value in ("whole", "blocks", "split"), key, "whole, blocks or split", value)
        case "closest_existing_kernel":
            _must(is_operation_name(value), key, "the name of a kernel of the repository", value)
        case _:
            return None
    return Change(key, value, field=_set(key, value))


def _tolerance(profile: KernelProfile, key: str, value: str) -> Change | None:
    match = re.fullmatch(r"tolerances\.(\w+)\.(atol|rtol)", key)
    dtype = _DTYPES.get(match[1], match[1]) if match else None
    if match is None or dtype not in profile.tolerances:
        return None
    number = _number(value)
    limit = LOOSEST.get(dtype, 0.0)
    _must(number is not None and 0 < number <= limit, key, f"a number above 0 and at most {limit:g}", value)

    def apply(fields: dict[str, Any]) -> None:
        fields["tolerances"][dtype][match[2]] = number

    return Change(f"tolerances.{dtype}.{match[2]}", value, field=apply)


def _benchmark(_: KernelProfile, key: str, value: str) -> Change | None:
    match key:
        case "benchmark_variable":
            allowed = ("hidden_size", "seq_len", "vocab_size")
            _must(value in allowed, key, f"one of {', '.join(allowed)}", value)
            return Change(key, value, field=_set(key, value))
        case "benchmark_x_label":
            _must(
                re.fullmatch(r"[A-Za-z0-9 ,()/_-]{1,60}", value),
                key,
                "up to 60 letters, digits and spaces",
                value,
            )
            return Change(key, value, field=_set(key, value))
        case "benchmark_x_values_suggestion":
            parts = [part for part in re.split(r"[\s,]+", value.strip("[]() ")) if part]
            numbers = [int(part) for part in parts if re.fullmatch(r"\d{1,7}", part)]
            _must(
                len(numbers) == len(parts)
                and 1 <= len(numbers) <= 12
                and all(0 < n <= 2**20 for n in numbers),
                key,
                "1 to 12 whole numbers up to 1048576, such as 1024,2048",
                value,
            )
            return Change(key, value, field=_set(key, sorted(set(numbers))))
        case "benchmark_providers":
            names = [part for part in re.split(r"[\s,]+", value.strip("[]() ")) if part]
            allowed = ("liger", "torch", "torch_compile")
            _must(
                {"liger", "torch"} <= set(names) <= set(allowed),
                key,
                "liger,torch or liger,torch,torch_compile",
                value,
            )
            return Change(key, value, field=_set(key, [name for name in allowed if name in names]))
        case "benchmark_fixed_config.BT":
            _must(
                re.fullmatch(r"\d{1,7}", value) and 0 < int(value) <= 2**20,
                key,
                "a whole number up to 1048576",
                value,
            )
            return Change(
                key, value, field=lambda fields: fields["benchmark_fixed_config"].update(BT=int(value))
            )
        case "benchmark_fixed_config.dtype":
            dtype = value if value.startswith("torch.") else f"torch.{_DTYPES.get(value, value)}"
            _must(dtype in _BENCHMARK_DTYPES, key, f"one of {', '.join(_BENCHMARK_DTYPES)}", value)
            return Change(
                key, dtype, field=lambda fields: fields["benchmark_fixed_config"].update(dtype=dtype)
            )
    return None


def _tensor(profile: KernelProfile, key: str, value: str) -> Change | None:
    name, _, what = key.partition(".")
    tensor = next((tensor for tensor in profile.op.tensors if tensor.name == name), None)
    if tensor is None or what not in {"shape", "needs_grad", "learnable", "init"}:
        return None
    match what:
        case "shape":
            named = tuple(part.strip() for part in value.strip("()").split(",") if part.strip())
            axes = ROLE_SHAPES.get(value, named)
            valid = value in ROLE_SHAPES or (
                axes and all(re.fullmatch(r"\*|[a-z]\w{0,31}", axis) for axis in axes) and "*" not in axes[1:]
            )
            _must(valid, key, "full, column, row, scalar, or axes such as (*, n_cols)", value)
            update: dict[str, Any] = {"shape": axes}
            if update["shape"] != ("n_cols",) and tensor.learnable and "*" in update["shape"]:
                update |= {"learnable": False, "init": None}
        case "needs_grad":
            _must(tensor.dtype == "float", key, "false: only floating-point tensors have gradients", value)
            update = {"needs_grad": _flag(key, value)}
        case "learnable":
            learnable = _flag(key, value)
            _must(
                not learnable or "*" not in tensor.shape,
                key,
                f"false for `{name}`: a module owns no tensor with row axes",
                value,
            )
            init = tensor.init or ("zeros" if name in {"bias", "beta", "shift"} else "ones")
            update = {"learnable": learnable, "init": init if learnable else None}
        case _:
            _must(value in _INITS, key, f"one of {', '.join(_INITS)}", value)
            _must(tensor.learnable, key, f"set on a learnable tensor, and `{name}` is an input", value)
            update = {"init": value}
    return Change(key, value, op=lambda op: _with_tensor(op, name, update))


def _scalar(profile: KernelProfile, key: str, value: str) -> Change | None:
    name = key.removeprefix("scalars.").removesuffix(".default")
    constexpr = name.endswith(".constexpr")
    name = name.removesuffix(".constexpr")
    scalar = next((scalar for scalar in profile.op.scalars if scalar.name == name), None)
    if scalar is None:
        return None
    if constexpr:
        return Change(f"{name}.constexpr", value, op=_scalar_change(name, {"constexpr": _flag(key, value)}))
    new: float | int | bool | str
    if isinstance(scalar.default, bool):
        new = _flag(key, value)
    elif isinstance(scalar.default, str):
        _must(re.fullmatch(r"[\w.-]{1,32}", value), key, "a word", value)
        new = value
    else:
        number = _number(value)
        if number is None or abs(number) >= LARGEST:
            raise Mistake(f"`{key}` must be a number; you wrote `{value[:60]}`.")
        _must(isinstance(scalar.default, float) or number == int(number), key, "a whole number", value)
        new = int(number) if isinstance(scalar.default, int) else number
    return Change(name, value, op=_scalar_change(name, {"default": new}))


def _scalar_change(name: str, update: dict[str, Any]) -> OpChange:
    def apply(op: OpSpec) -> OpSpec:
        return op.model_copy(
            update={
                "scalars": tuple(
                    ScalarSpec(**{**s.model_dump(), **update}) if s.name == name else s for s in op.scalars
                )
            }
        )

    return apply


def _with_tensor(op: OpSpec, name: str, update: dict[str, Any]) -> OpSpec:
    return op.model_copy(
        update={
            "tensors": tuple(
                TensorSpec(**{**t.model_dump(), **update}) if t.name == name else t for t in op.tensors
            )
        }
    )


def _flag(key: str, value: str) -> bool:
    lowered = value.lower()
    _must(lowered in {"true", "false", "yes", "no"}, key, "true or false", value)
    return lowered in {"true", "yes"}


def _number(value: str) -> float | None:
    try:
        number = ast.literal_eval(value) if len(value) < 40 else None
    except (ValueError, SyntaxError):
        return None
    return float(number) if isinstance(number, int | float) and not isinstance(number, bool) else None
