"""References taken from installed packages, made to stand on their own."""

from __future__ import annotations

import math
import sys
import types
from pathlib import Path

import pytest
import torch

from kernels.derivation import Unsupported
from kernels.op_spec import OpSpec
from runners.reference import extract_source, import_dotted, load_reference
from runners.static_scan import scan

MODULE = '''
import functools
import math
import os

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SCALE = 2.5
LIMIT = float("inf")


def decorated(function):
    return function


def helper(x: Tensor) -> Tensor:
    return x * SCALE


class Base(nn.Module):
    """The base."""

    def gate(self, x):
        return F.silu(helper(x))


@decorated
class Derived(Base):
    def __init__(self, eps=1e-6):
        super().__init__()
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return self.gate(x) * math.sqrt(2) + self.eps


def uses_os(x):
    return os.getpid() * x


def uses_object(x):
    return partial_relu(x)


partial_relu = functools.partial(torch.relu)
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    (tmp_path / "some_library.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("some_library", None)
    return __import__("some_library")


def test_a_class_is_carried_with_what_it_needs(module: types.ModuleType, tmp_path: Path) -> None:
    source = extract_source(module.Derived)
    assert scan(source) == []
    assert "decorated" not in source
    loaded = load_reference(OpSpec(name="derived", entry="Derived", source=source), tmp_path)
    x = torch.randn(3, 4)
    assert torch.equal(loaded()(x), module.Derived()(x))


@pytest.mark.parametrize(
    ("name", "words"), [("uses_os", "module os"), ("uses_object", "partial_relu, a partial")]
)
def test_what_can_not_be_carried_is_named(module: types.ModuleType, name: str, words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        extract_source(getattr(module, name))


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("no_such_package.x:Y", "can't be imported"),
        ("some_library:Missing", "has nothing called Missing"),
        ("some_library:SCALE", "no function or class"),
    ],
)
def test_dotted_paths_that_lead_nowhere(module: types.ModuleType, path: str, words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        import_dotted(path)


def test_a_reference_that_fails_when_loaded_says_where(tmp_path: Path) -> None:
    op = OpSpec(name="f", entry="f", source="import torch\nX = undefined_name + 1\ndef f(x):\n    return x\n")
    with pytest.raises(Unsupported, match="NameError") as found:
        load_reference(op, tmp_path)
    assert found.value.where == "line 2: X = undefined_name + 1"


def test_a_missing_entry_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="called g"):
        load_reference(OpSpec(name="f", entry="g", source="def f(x):\n    return x\n"), tmp_path)


def test_constants_of_mathematics_are_imported(module: types.ModuleType) -> None:
    assert math.isinf(module.LIMIT)
