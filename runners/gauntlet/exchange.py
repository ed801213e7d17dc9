"""Tensors and results in files between two sandboxes: raw bytes, bounded and checked, nothing unpickled."""

from __future__ import annotations

import ctypes
import json
import os
import stat
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import torch

from runners.gauntlet.case import DTYPES, Case
from runners.gauntlet.truth import Results
from runners.sandbox import read_result

Read = Callable[[Any], torch.Tensor]


def reader(folder: Path) -> Read:
    """Reads a tensor that the candidate's sandbox left: a plain file of exactly the size that its shape says."""

    def read(item: Any) -> torch.Tensor:
        dtype, shape = DTYPES[item["dtype"]], [int(size) for size in item["shape"]]
        name = str(item["file"])
        if "/" in name or name.startswith("."):
            raise ValueError(f"{name!r} is not a result file")
        size = prod(shape) * torch.empty(0, dtype=dtype).element_size()
        descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode) or os.fstat(descriptor).st_size != size:
                raise ValueError(f"{name} does not hold {shape} {item['dtype']} values")
            data = bytearray(file.read())
        return torch.frombuffer(data, dtype=dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)

    return read


def publish(cases: list[Case], folder: Path) -> None:
    """Write what the candidate's sandbox needs: storages as raw bytes, then cases.json, which it waits for."""
    for case in cases:
        for name, storage in case.storages.items():
            data = ctypes.string_at(storage.data_ptr(), storage.numel() * storage.element_size())
            (folder / f"{case.id.replace('/', '_')}.{name}.bin").write_bytes(data)
    write_json(folder / "cases.json", [case.to_json() for case in cases])


def write_json(path: Path, value: object) -> None:
    """Write JSON so that a reader sees all of it or no file."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value))
    part.rename(path)


def read_answers(output: Path, died: str) -> tuple[dict[str, dict[str, Any]], Read, str]:
    """What a candidate's process left: answers by case, how to read their tensors, and why it ended early or ""."""
    report = read_result(output / "results.json") or read_result(output / "partial.json") or {}
    answers = {
        str(answer["id"]): answer
        for answer in report.get("results", [])
        if isinstance(answer, dict) and "id" in answer
    }
    if report.get("error"):
        error = report["error"]
        died = f"the candidate does not load: {error.get('type')}: {error.get('message')}"
    return answers, reader(output), died


def load_results(run: dict[str, Any], read: Read) -> Results:
    return Results(
        [read(item) for item in run["outputs"]],
        {str(name): None if item is None else read(item) for name, item in run["gradients"].items()},
    )


def same_results(one: Results, other: Results) -> bool:
    mine, theirs = _all(one), _all(other)
    return len(mine) == len(theirs) and all(equal_bits(a, b) for a, b in zip(mine, theirs, strict=True))


def _all(results: Results) -> list[torch.Tensor]:
    gradients = [results.gradients[name] for name in sorted(results.gradients)]
    return [*results.outputs, *(gradient for gradient in gradients if gradient is not None)]


def equal_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(
        torch.equal(
            one.contiguous().flatten().view(torch.uint8), other.contiguous().flatten().view(torch.uint8)
        )
    )


def same_again(again: Any, results: Results, read: Read) -> dict[str, bool] | None:
    if not again:
        return None
    same: dict[str, bool] = {}
    for name, item in again.items():
        first = results.gradients.get(str(name))
        same[str(name)] = (first is None and item is None) or (
            first is not None and item is not None and equal_bits(first, read(item))
        )
    return same
