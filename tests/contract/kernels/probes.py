"""Probes of printed modules in Triton's interpreter: NaN, empty and strided tensors, helpers. One JSON job, one answer.

Reads {"module": source, "function": name, "probe": name} on standard input and writes {"failures": [...]}.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch

from tests.contract.kernels.interpreted import load, repair_interpreter

NAN, INF = float("nan"), float("inf")


def nan_propagates(function: Any) -> list[str]:
    """A NaN anywhere in a row must be seen in that row's result and gradient."""
    x = torch.randn(4, 33)
    x[1, 7] = NAN
    x.requires_grad_(True)
    y = function.apply(x)
    y.backward(torch.ones_like(y))
    failures = [] if y[1].isnan().any() else ["the result lost a NaN"]
    if not x.grad[1].isnan().any():
        failures.append("the gradient lost a NaN")
    if y[0].isnan().any() or x.grad[2].isnan().any():
        failures.append("a NaN reached another row")
    return failures


def empty_launches_nothing(function: Any) -> list[str]:
    failures = []
    for shape in ((0, 5), (3, 0), (0, 0), (2, 0, 7)):
        x = torch.randn(shape).requires_grad_(True)
        y = function.apply(x)
        y.backward(torch.ones_like(y))
        if y.shape != x.shape or x.grad.shape != x.shape:
            failures.append(f"{shape} became {tuple(y.shape)}")
    return failures


def strided_tensors_are_read_right(function: Any) -> list[str]:
    """Transposed and expanded inputs, and an incoming gradient with a stride of two."""
    failures = []
    base = torch.randn(33, 6)
    for name, x in (
        ("transposed", base.t()),
        ("sliced", torch.randn(6, 66)[:, ::2]),
        ("expanded", torch.randn(1, 33).expand(6, 33)),
    ):
        plain = x.contiguous().requires_grad_(True)
        odd = x.detach().requires_grad_(True)
        dy = torch.randn(6, 66)[:, ::2]
        one, other = function.apply(plain), function.apply(odd)
        one.backward(dy.contiguous())
        other.backward(dy)
        if not torch.equal(one, other) or not torch.equal(plain.grad, odd.grad):
            failures.append(name)
    return failures


def twice_gives_the_same(function: Any) -> list[str]:
    """Backward twice: saved tensors must be intact after the first."""
    x = torch.randn(4, 33, requires_grad=True)
    y = function.apply(x)
    dy = torch.randn_like(y)
    first, second = (torch.autograd.grad(y, x, dy, retain_graph=True)[0] for _ in range(2))
    return [] if torch.equal(first, second) else ["the second backward differs"]


def extremes_stay_finite(function: Any) -> list[str]:
    """Large finite inputs: where eager is finite, so are we."""
    x = torch.tensor([[-1e4, -300.0, -89.0, -20.0, -1e-3, 0.0, 1e-3, 20.0, 89.0, 300.0, 1e4]]).requires_grad_(
        True
    )
    y = function.apply(x)
    y.backward(torch.ones_like(y))
    return [] if y.isfinite().all() and x.grad.isfinite().all() else [f"{y.tolist()} {x.grad.tolist()}"]


PROBES: dict[str, Callable[[Any], list[str]]] = {
    f.__name__: f
    for f in (
        nan_propagates,
        empty_launches_nothing,
        strided_tensors_are_read_right,
        twice_gives_the_same,
        extremes_stay_finite,
    )
}


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    repair_interpreter()
    jobs = json.load(sys.stdin)
    answers = []
    with tempfile.TemporaryDirectory() as folder:
        for index, job in enumerate(jobs):
            module = load(job["module"], f"probe_{index}", Path(folder))
            try:
                failures = PROBES[job["probe"]](getattr(module, job["function"]))
            except Exception as error:  # noqa: BLE001 - reported to the test as data
                failures = [repr(error)[-1500:]]
            answers.append(failures)
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
