"""Run printed modules in Triton's interpreter, in a process of its own, against fp64 autograd of the reference.

Reads lines of JSON, a list of cases each, and writes a line with the list of results for each; a line with a number is the
exit status of a process that died. Every list has a process of its own, because the interpreter doesn't check bounds: a wrong
kernel can corrupt the heap. It is forked from this one, which has imported torch and Triton once for all.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch


def repair_interpreter() -> None:
    """The runner's repairs: bf16 arithmetic and Python floats as kernel arguments."""
    from runners.interpreter import repair

    repair()


def load(source: str, name: str, folder: Path) -> Any:
    path = folder / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def reference(op: dict, sizes: dict[str, int]) -> Any:
    namespace: dict[str, Any] = {}
    exec(compile(op["source"], "<reference>", "exec"), namespace)  # noqa: S102 - our own test references
    entry = namespace[op["entry"]]
    if op["kind"] != "module":
        return entry
    from kernels.op_spec import OpSpec
    from kernels.roles import guess_roles

    roles = next(guess_roles(OpSpec.model_validate(op), entry))
    scalars = {s["name"]: s["default"] for s in op["scalars"]}
    call = roles.bind(entry, sizes, scalars)
    names = {s["name"] for s in op["scalars"]}
    return lambda **kw: call({k: v for k, v in kw.items() if k not in names})


def example(spec: dict, shape: tuple[int, ...], generator: torch.Generator, high: int) -> torch.Tensor:
    if spec["dtype"] == "bool":
        return torch.rand(shape, generator=generator) < 0.6
    if spec["dtype"] == "int64":
        return torch.randint(0, high, shape, generator=generator)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def run_case(case: dict, folder: Path, index: int) -> dict:
    op = case["op"]
    module = load(case["module"], f"case_{index}", folder)
    function = getattr(module, case["function"])
    dtype = getattr(torch, case.get("dtype", "float32"))
    worst: dict[str, float] = {}
    for number, sizes in enumerate(case["sizes"]):
        generator = torch.Generator().manual_seed(number)
        call = reference(op, sizes)
        lead = sizes.get("*", [sizes.get("n_rows", 3)])
        if case.get("flat_rows"):  # F.cross_entropy and the like take (rows, columns) only
            lead = [math.prod(lead)]
        high = sizes.get("vocab_size", sizes.get("n_cols", 2))
        doubles: dict[str, torch.Tensor] = {}
        for spec in op["tensors"]:
            shape: list[int] = []
            for axis in spec["shape"]:
                shape.extend(lead if axis == "*" else [sizes[axis]])
            value = example(spec, tuple(shape), generator, high)
            if spec["dtype"] == "float":
                value = value.to(dtype).double().requires_grad_(spec["needs_grad"])
                if case.get("positive"):
                    value = (value.detach().abs() + 0.1).requires_grad_(spec["needs_grad"])
            doubles[spec["name"]] = value
        ours = {
            n: (v.detach().to(dtype).requires_grad_(v.requires_grad) if v.is_floating_point() else v)
            for n, v in doubles.items()
        }
        scalars = {s["name"]: s["default"] for s in op["scalars"]}
        # The reference's own casts to fp32 would hide the oracle's precision: in fp64 they must not round.
        expected = call(**doubles, **scalars)
        arguments = [ours[n] if n in ours else scalars[n] for n in case["call_order"]]
        actual = function.apply(*arguments)
        expected = expected if isinstance(expected, tuple) else (expected,)
        actual = actual if isinstance(actual, tuple) else (actual,)
        tangents = [
            torch.randn(e.shape, generator=generator, dtype=torch.float64).to(dtype) for e in expected
        ]
        if "incoming" in case:
            tangents = [torch.full_like(t, case["incoming"]) for t in tangents]
        before = [t.clone() for t in tangents] + [v.detach().clone() for v in ours.values()]
        differentiable = [i for i, e in enumerate(expected) if e.requires_grad]
        backward(expected, tangents, differentiable)
        backward(actual, tangents, differentiable)
        eager_inputs = {
            n: (v.detach().clone().requires_grad_(v.requires_grad) if v.is_floating_point() else v)
            for n, v in ours.items()
        }
        eager = call(**eager_inputs, **scalars)
        eager = eager if isinstance(eager, tuple) else (eager,)
        backward(eager, tangents, differentiable)
        after = [*tangents, *(v.detach() for v in ours.values())]
        if not all(torch.equal(a, b) for a, b in zip(before, after, strict=True)):
            raise AssertionError("an input or incoming gradient was changed")
        for i, (e, a) in enumerate(zip(expected, actual, strict=True)):
            if e.shape != a.shape:
                raise AssertionError(f"result {i} has shape {tuple(a.shape)}, not {tuple(e.shape)}")
            note(worst, f"result {i}", e, a, eager[i])
        for name, value in doubles.items():
            if value.requires_grad:
                mine = ours[name].grad
                if mine is None:
                    raise AssertionError(f"no gradient for {name}")
                zero = torch.zeros_like(value)
                theirs = eager_inputs[name].grad
                note(
                    worst,
                    f"d{name}",
                    value.grad if value.grad is not None else zero,
                    mine,
                    zero if theirs is None else theirs,
                )
    return {"name": op["name"], "worst": worst}


def backward(results: tuple[torch.Tensor, ...], tangents: list[torch.Tensor], which: list[int]) -> None:
    if which:
        torch.autograd.backward(
            [results[i] for i in which], [tangents[i].to(results[i].dtype) for i in which]
        )


def note(
    worst: dict[str, float], key: str, expected: torch.Tensor, actual: torch.Tensor, eager: torch.Tensor
) -> None:
    """Largest error relative to the tensor's largest value, beyond what eager itself is off by in the same dtype."""
    if expected.numel() == 0:
        return
    actual, eager = actual.detach().double(), eager.detach().double()
    if not torch.equal(expected.isnan(), actual.isnan()):
        worst[key] = float("inf")
        return
    scale = expected.detach().abs().nan_to_num().max().item() or 1.0
    if not expected.dim():
        # A sum's rounding is that of its terms, which are of size 1 here, however near zero they add up to.
        scale = max(scale, 1.0)
    error = ((expected.detach() - actual).abs().nan_to_num().max() / scale).item()
    eagers = ((expected.detach() - eager).abs().nan_to_num().max() / scale).item()
    worst[key] = max(worst.get(key, 0.0), error - 2 * eagers)


def run_cases(cases: list[dict], folder: Path) -> list[dict]:
    results = []
    for index, case in enumerate(cases):
        try:
            results.append(run_case(case, folder, index))
        except Exception:  # noqa: BLE001 - reported to the test as data
            results.append({"name": case["op"]["name"], "error": traceback.format_exc()[-3000:]})
    return results


def main() -> None:
    torch.set_num_threads(1)
    repair_interpreter()
    for line in sys.stdin:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if (child := os.fork()) == 0:
                (folder / "results.json").write_text(json.dumps(run_cases(json.loads(line), folder)))
                os._exit(0)
            _, status = os.waitpid(child, 0)
            sys.stdout.write(((folder / "results.json").read_text() if status == 0 else str(status)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
