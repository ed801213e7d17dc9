"""Which argument of a reference is what: full tensor, per-column vector, target, mask, scalar. Imports torch.

Roles that the OpSpec gives are taken as they are. Otherwise they are guessed from names, defaults and annotations, and
every guess becomes a question for the person.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from kernels.derivation import Unsupported
from kernels.op_spec import OpSpec, ScalarSpec, TensorSpec
from kernels.reference_state import attributes, require_unchanged

COLUMN_NAMES = {"weight", "gamma", "beta", "bias", "scale", "shift", "w"}
TARGET_NAMES = {"target", "targets", "label", "labels", "index", "indices", "idx", "input_ids"}
MASK_NAMES = {"mask", "attention_mask", "attn_mask", "keep", "padding_mask"}
SIZE_NAMES = {
    "hidden_size", "dim", "size", "features", "num_features", "normalized_shape", "channels", "n_cols", "width", "d_model",
}  # fmt: skip
FULL, COLUMN = ("*", "n_cols"), ("n_cols",)
MANY_ALIKE = 4  # so many tensors are seldom all of one shape, as two or three are: worth a question


@dataclass(frozen=True)
class Call:
    """A bound reference: takes tensors by name."""

    run: Callable[[Mapping[str, torch.Tensor]], Any]
    filename: str

    def __call__(self, tensors: Mapping[str, torch.Tensor]) -> Any:
        return self.run(tensors)


@dataclass(frozen=True)
class Roles:
    """An OpSpec with every role filled in, and how to call the reference with it."""

    op: OpSpec
    questions: tuple[str, ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()  # tensor name -> dotted name of the module's parameter
    size_arguments: tuple[str, ...] = ()  # constructor arguments that take n_cols

    def bind(self, reference: Any, sizes: Mapping[str, int], scalars: Mapping[str, Any]) -> Call:
        """A callable of the tensors at these sizes and scalar values."""
        if not _is_module(reference):
            return Call(lambda tensors: reference(**tensors, **scalars), _filename(reference))
        module = _instance(reference, {**scalars, **dict.fromkeys(self.size_arguments, sizes["n_cols"])})
        dotted = dict(self.parameters)

        def run(tensors: Mapping[str, torch.Tensor]) -> Any:
            parameters = {dotted[n]: t for n, t in tensors.items() if n in dotted}
            inputs = {n: t for n, t in tensors.items() if n not in dotted}
            before = attributes(module)
            result = torch.func.functional_call(module, parameters, (), inputs)
            require_unchanged(before, attributes(module))
            return result

        return Call(run, _filename(type(module).forward))


def guess_roles(op: OpSpec, reference: Any) -> Iterator[Roles]:
    """The given roles, or guesses, best first."""
    if _is_module(reference):
        yield from _module_roles(op, reference)
        return
    if op.tensors:
        yield Roles(op)
        return
    yield from _function_roles(op, reference)


def _is_module(reference: Any) -> bool:
    return isinstance(reference, nn.Module) or (
        isinstance(reference, type) and issubclass(reference, nn.Module)
    )


def _filename(function: Any) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code.co_filename if code is not None else "<unknown>"


def _signature(function: Any) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise Unsupported(
            "the reference's signature can't be read", needed="a plain Python function"
        ) from error
    return [p for p in parameters if p.name != "self"]


def _scalar(parameter: inspect.Parameter) -> ScalarSpec | None:
    """The scalar that a parameter with a default is; None when its default is no scalar."""
    default = parameter.default
    if isinstance(default, bool | str):
        return ScalarSpec(name=parameter.name, default=default, constexpr=True)
    if isinstance(default, int | float):
        wants_float = parameter.annotation in (float, "float")
        return ScalarSpec(name=parameter.name, default=float(default) if wants_float else default)
    return None


def _tensor(name: str) -> tuple[TensorSpec, str]:
    lowered = name.lower()
    if lowered in COLUMN_NAMES:
        return TensorSpec(name=name, shape=COLUMN), "a per-column vector"
    if lowered in TARGET_NAMES:
        return TensorSpec(name=name, shape=("*",), dtype="int64", needs_grad=False), "one integer a row"
    if lowered in MASK_NAMES:
        return TensorSpec(name=name, shape=FULL, dtype="bool", needs_grad=False), "a boolean mask"
    return TensorSpec(name=name, shape=FULL), "a full tensor"


def _function_roles(op: OpSpec, function: Any) -> Iterator[Roles]:
    tensors: list[TensorSpec] = []
    scalars: list[ScalarSpec] = []
    questions: list[str] = []
    given = {s.name: s for s in op.scalars}
    for parameter in _signature(function):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise Unsupported(
                f"the parameter {parameter} is not understood", needed="a fixed list of named parameters"
            )
        if parameter.name in given:
            scalars.append(given[parameter.name])
            continue
        if parameter.default is not parameter.empty:
            scalar = _scalar(parameter)
            if scalar is not None:
                scalars.append(scalar)
            continue
        if parameter.annotation in (int, float, "int", "float", bool, "bool", str, "str"):
            raise Unsupported(
                f"the scalar parameter {parameter.name} has no default",
                needed=f"a default value, e.g. {parameter.name}=1.0",
            )
        spec, words = _tensor(parameter.name)
        tensors.append(spec)
        if spec.shape != FULL or spec.dtype != "float":
            questions.append(f"{parameter.name} was taken as {words}, by its name.")
    if not tensors:
        raise Unsupported("the reference takes no tensors", needed="a function of at least one tensor")
    alike = [t.name for t in tensors if t.shape == FULL and t.dtype == "float"]
    if len(alike) >= MANY_ALIKE:
        questions.append(f"{', '.join(alike[:-1])} and {alike[-1]} were taken as tensors of one shape.")
    filled = op.model_copy(update={"tensors": tuple(tensors), "scalars": tuple(scalars)})
    yield Roles(filled, tuple(questions))
    if any(t.shape == COLUMN for t in tensors):
        # The names lied: try everything full.
        everything = tuple(t.model_copy(update={"shape": FULL}) if t.shape == COLUMN else t for t in tensors)
        yield Roles(
            op.model_copy(update={"tensors": everything, "scalars": tuple(scalars)}),
            ("every floating-point argument was taken as a full tensor.",),
        )


# --- modules ---------------------------------------------------------------------------------------------------------


def _constructor_values(reference: Any) -> tuple[list[str], dict[str, Any]]:
    """Size arguments and scalar arguments of a module's constructor; of an instance, with its own values."""
    kind = type(reference) if isinstance(reference, nn.Module) else reference
    sizes: list[str] = []
    values: dict[str, Any] = {}
    if kind.__init__ is nn.Module.__init__:
        return sizes, values
    for parameter in _signature(kind.__init__):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.name in SIZE_NAMES:
            sizes.append(parameter.name)
        elif parameter.default is not parameter.empty:
            scalar = _scalar(parameter)
            if scalar is not None:
                value = (
                    getattr(reference, parameter.name, scalar.default)
                    if isinstance(reference, nn.Module)
                    else None
                )
                values[parameter.name] = (
                    value if isinstance(value, bool | int | float | str) else scalar.default
                )
        else:
            raise Unsupported(
                f"the constructor argument {parameter.name} of {kind.__name__} has no default",
                needed="a default value, or a name such as hidden_size for the number of columns",
            )
    return sizes, values


def _instance(reference: Any, arguments: Mapping[str, Any]) -> nn.Module:
    kind = type(reference) if isinstance(reference, nn.Module) else reference
    try:
        return kind(**arguments) if kind.__init__ is not nn.Module.__init__ else kind()
    except Exception as error:
        raise Unsupported(f"{kind.__name__} can't be constructed: {type(error).__name__}: {error}") from error


def _module_roles(op: OpSpec, reference: Any) -> Iterator[Roles]:
    sizes, values = _constructor_values(reference)
    probe = _instance(reference, {**values, **dict.fromkeys(sizes, 29)})
    given = {t.name: t for t in op.tensors}
    tensors: list[TensorSpec] = []
    questions: list[str] = []
    for parameter in _signature(type(probe).forward):
        if parameter.default is not parameter.empty or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            continue
        spec, words = _tensor(parameter.name)
        tensors.append(given.get(parameter.name, spec))
        if parameter.name not in given and (spec.shape != FULL or spec.dtype != "float"):
            questions.append(f"{parameter.name} was taken as {words}, by its name.")
    parameters: list[tuple[str, str]] = []
    for dotted, value in probe.named_parameters():
        name = dotted.replace(".", "_")
        parameters.append((name, dotted))
        if name in given:
            tensors.append(given[name])
            continue
        shape = tuple("n_cols" if size == 29 else None for size in value.shape)
        if None in shape:
            raise Unsupported(
                f"the parameter {dotted} has the fixed shape {tuple(value.shape)}",
                needed="its axes named in the op's tensors",
            )
        tensors.append(
            TensorSpec(name=name, shape=tuple(s for s in shape if s), learnable=True, init=_init(value))
        )
    known = {s.name: s for s in op.scalars}
    scalars = tuple(
        known.get(n, ScalarSpec(name=n, default=v, constexpr=isinstance(v, bool | str)))
        for n, v in values.items()
    )
    yield Roles(
        op.model_copy(update={"tensors": tuple(tensors), "scalars": scalars, "kind": "module"}),
        tuple(questions),
        tuple(parameters),
        tuple(sizes),
    )


def _init(value: torch.Tensor) -> Any:
    for name, constant in (("ones", 1.0), ("zeros", 0.0), ("half", 0.5)):
        if bool((value == constant).all()):
            return name
    return "randn"
