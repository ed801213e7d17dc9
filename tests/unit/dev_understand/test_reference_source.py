"""Blocks and linked files become self-contained references, or are refused with the line."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from agents.dev.reference_source import extract_reference, read_block
from agents.dev.refused import Mistake
from runners.static_scan import scan

FILE = '''\
"""A model file."""
import math
from typing import Optional

import torch
import torch.nn as nn
from torch import Tensor
from transformers.activations import ACT2FN

from .config import Config

LIMIT = 7.0
ALPHA = 1.0 + LIMIT


def _scaled(x):
    return x * ALPHA


@torch.jit.script
def capped(x: Tensor, cap: Optional[float] = 30.0) -> Tensor:
    """Softcap, scaled."""
    return cap * torch.tanh(_scaled(x) / cap)


def uses_registry(x):
    return ACT2FN["silu"](x)


class Norm(nn.Module):
    def __init__(self, hidden_size: int, eps: float = 1e-6, config: Config = None):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
'''


def refused(*arguments, function=read_block):
    with pytest.raises(Mistake) as caught:
        function(*arguments)
    return caught.value.refused


def test_a_function_is_taken_as_it_stands():
    source = "import torch\n\ndef my_act(x, alpha=1.0):\n    return torch.tanh(alpha * x)\n"

    found = read_block(source)

    assert (found.source, found.entry, found.kind, found.questions) == (source, "my_act", "function", ())


def test_the_usual_imports_are_added_when_the_block_leaves_them_out():
    found = read_block("def f(x):\n    return F.silu(x) * math.pi\n")

    assert found.source.splitlines()[:2] == ["import math", "import torch.nn.functional as F"]
    assert scan(found.source) == []


def test_a_module_is_preferred_to_its_helper_functions():
    found = read_block(
        "def helper(x):\n    return x\n\nclass Act(nn.Module):\n    def forward(self, x):\n        return helper(x)\n"
    )

    assert (found.entry, found.kind) == ("Act", "module")


def test_of_two_candidates_the_last_is_taken_and_that_is_a_question():
    found = read_block("def first(x):\n    return x\n\ndef second(x):\n    return -x\n")

    assert found.entry == "second"
    assert "`first`" in found.questions[0]


def test_the_name_of_the_command_picks_the_definition():
    assert (
        read_block("def first_act(x):\n    return x\n\ndef second(x):\n    return -x\n", "first_act").entry
        == "first_act"
    )


@pytest.mark.parametrize(
    ("source", "reason", "where"),
    [
        (
            "def f(x):\n  return x *\n",
            snapshot("The block does not parse: invalid syntax."),
            snapshot("reference line 2: return x *"),
        ),
        (
            "def f(x):\n    import os\n    return x\n",
            snapshot(
                "The reference is refused: `import os` is not allowed: a reference may import math, torch, torch.nn, torch.nn.functional, typing."
            ),
            snapshot("reference line 2: import os"),
        ),
        (
            "import torch\ndef f(x):\n    return eval('x')\n",
            snapshot("The reference is refused: `eval` may not be used in a reference."),
            snapshot("reference line 3: return eval('x')"),
        ),
        ("", snapshot("The reference has no function and no nn.Module."), None),
        ("X = 1\n", snapshot("The reference has no function and no nn.Module."), None),
        (
            "def f(*xs):\n    return xs\n",
            snapshot("`f` takes *args or **kwargs; name every argument."),
            snapshot("reference line 1: def f"),
        ),
        ("def f():\n    return 1\n", snapshot("`f` takes no tensor."), snapshot("reference line 1: def f")),
        (
            "class A(nn.Module):\n    pass\n",
            snapshot("`A` has no forward method."),
            snapshot("reference line 4: class A"),
        ),
        ("class A:\n    pass\n", snapshot("`A` is not an nn.Module."), snapshot("reference line 1: class A")),
        ("#" * 1_000_001, snapshot("The block has 1,000,001 characters; at most 100,000 are read."), None),
        ("def f(x):\n    return " + "-" * 100_000 + "x\n", None, None),
        ("def f(x):\n    return " + "(" * 300 + "x" + ")" * 300 + "\n", None, None),
    ],
)
def test_a_mistake_is_one_line_with_the_place(source, reason, where):
    found = refused(source)

    if reason is not None:
        assert (found.reason, found.where) == (reason, where)
    assert "\n" not in found.reason
    assert len(found.reason) < 300


def test_a_null_byte_is_refused():
    assert "null bytes" in refused("x = '\0'\n").reason


def test_a_function_is_cut_out_of_a_file_with_what_it_needs():
    found = extract_reference(FILE, (21, 24))

    assert found.entry == "capped"
    assert found.source == snapshot('''\
import torch


LIMIT = 7.0


ALPHA = 1.0 + LIMIT


def _scaled(x):
    return x * ALPHA


def capped(x, cap=30.0):
    """Softcap, scaled."""
    return cap * torch.tanh(_scaled(x) / cap)
''')
    assert found.questions == (
        "The decorator `@torch.jit.script` of `capped` was left out of the reference.",
    )


def test_a_single_line_inside_a_module_selects_it():
    found = extract_reference(FILE, (36, 36))

    assert (found.entry, found.kind) == ("Norm", "module")
    assert "Config" not in found.source


def test_a_file_with_one_module_needs_no_lines():
    assert extract_reference(FILE).entry == "Norm"


def test_a_name_selects_too():
    assert extract_reference(FILE, None, "capped").entry == "capped"


def test_code_that_needs_another_file_is_refused_by_the_import():
    found = refused(FILE, (27, 28), function=extract_reference)

    assert (
        found.reason
        == "The code at that link uses `ACT2FN` from `transformers.activations`, which a reference may not import."
    )
    assert found.where == "line 8: from transformers.activations import ACT2FN"


def test_lines_without_code_and_files_with_several_candidates_are_refused():
    assert (
        refused(FILE, (1, 3), function=extract_reference).reason == "Lines 1-3 hold no function and no class."
    )
    several = refused("def a(x):\n    return x\n\ndef b(x):\n    return x\n", function=extract_reference)
    assert several.reason == "The file holds several candidates (`a`, `b`)."
    assert "#L10-L40" in (several.needed or "")
