"""Probes of a printed cross entropy whose forward writes the gradient, in Triton's interpreter. One JSON job, one answer.

Reads {"module": source, "function": name} on standard input and writes {probe: [failures]}.
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
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from tests.contract.kernels.interpreted import load, repair_interpreter

ROWS, COLS, IGNORED = 6, 37, -100
# fp32: a few roundings of sums of 37 terms, relative to gradients of at most 1.
TOLERANCE = 1e-6


class Allocations(TorchDispatchMode):
    """Counts the allocations as large as the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if "empty" in str(func) and result.numel() >= ROWS * COLS:
            self.count += 1
        return result


def logits() -> tuple[torch.Tensor, torch.Tensor]:
    target = torch.randint(0, COLS, (ROWS,))
    target[2] = IGNORED
    return torch.randn(ROWS, COLS, requires_grad=True), target


def eager_gradient(x: torch.Tensor, target: torch.Tensor, incoming: torch.Tensor) -> torch.Tensor:
    double = x.detach().double().requires_grad_(True)
    return torch.autograd.grad(F.cross_entropy(double, target), double, incoming.double())[0]


def each_backward_has_its_own_incoming_gradient(function: Any) -> list[str]:
    failures = []
    for numbers in ((1.0, 2.5, 1.0), (2.5, 1.0), (0.0, 1.0)):
        x, target = logits()
        loss = function.apply(x, target)
        gradients = [
            torch.autograd.grad(loss, x, torch.tensor(number), retain_graph=True)[0] for number in numbers
        ]
        for number, gradient in zip(numbers, gradients, strict=True):
            wanted = eager_gradient(x, target, torch.tensor(number))
            if (gradient - wanted).abs().max() > TOLERANCE:
                failures.append(f"{number} of {numbers}")
    return failures


def incoming_gradient_is_not_written(function: Any) -> list[str]:
    failures = []
    for number in (1.0, 2.5):
        x, target = logits()
        incoming = torch.tensor(number)
        function.apply(x, target).backward(incoming)
        failures += [] if incoming.item() == number else [f"{number} became {incoming.item()}"]
    return failures


def the_forward_allocates_the_only_gradient(function: Any) -> list[str]:
    x, target = logits()
    with Allocations() as forward:
        loss = function.apply(x, target)
    with Allocations() as first:
        torch.autograd.grad(loss, x, retain_graph=True)
    with Allocations() as second:
        torch.autograd.grad(loss, x)
    counts = (forward.count, first.count, second.count)
    return [] if counts == (1, 0, 1) else [f"full tensors allocated: {counts}"]


def nothing_is_allocated_without_gradients(function: Any) -> list[str]:
    x, target = logits()
    with Allocations() as forward:
        loss = function.apply(x.detach(), target)
    failures = [] if not forward.count else ["a gradient was allocated"]
    if loss.requires_grad or (loss - F.cross_entropy(x, target)).abs() > TOLERANCE * loss:
        failures.append("another loss")
    return failures


def a_freed_graph_is_refused(function: Any) -> list[str]:
    x, target = logits()
    loss = function.apply(x, target)
    loss.backward()
    try:
        loss.backward()
    except RuntimeError as error:
        return [] if "second time" in str(error) else [str(error)]
    return ["a second backward ran on freed tensors"]


def without_a_label_it_is_as_in_eager(function: Any) -> list[str]:
    failures = []
    for number in (1.0, 2.5):
        x, target = logits()
        target.fill_(IGNORED)
        loss = function.apply(x, target)
        (gradient,) = torch.autograd.grad(loss, x, torch.tensor(number))
        wanted = eager_gradient(x, target, torch.tensor(number)).float()
        if not loss.isnan() or not torch.equal(gradient, wanted):
            failures.append(f"loss {loss.item()}, gradient {gradient.flatten()[:3].tolist()}")
    return failures


PROBES: dict[str, Callable[[Any], list[str]]] = {
    f.__name__: f
    for f in (
        each_backward_has_its_own_incoming_gradient,
        incoming_gradient_is_not_written,
        the_forward_allocates_the_only_gradient,
        nothing_is_allocated_without_gradients,
        a_freed_graph_is_refused,
        without_a_label_it_is_as_in_eager,
    )
}


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    repair_interpreter()
    job = json.load(sys.stdin)
    answers = {}
    with tempfile.TemporaryDirectory() as folder:
        function = getattr(load(job["module"], "loss", Path(folder)), job["function"])
        for name, probe in PROBES.items():
            try:
                answers[name] = probe(function)
            except Exception as error:  # noqa: BLE001 - reported to the test as data
                answers[name] = [repr(error)[-1500:]]
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
