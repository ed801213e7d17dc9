"""The allow-list lets ordinary references through and names what it refuses, with the line."""

from __future__ import annotations

import pytest

from runners.static_scan import MAX_SOURCE_CHARS, scan

GOOD = {
    "function": "import torch\n\ndef relu_squared(x):\n    return torch.relu(x) ** 2\n",
    "functional alias": "import torch.nn.functional as F\ndef swiglu(a, b):\n    return F.silu(a) * b\n",
    "from imports": "from torch.nn import functional as F\nfrom torch import nn\nfrom math import sqrt, pi\n"
    "def f(x, alpha: float = 1.0):\n    return F.gelu(x, approximate='tanh') * sqrt(2 / pi) * alpha\n",
    "module": 'import torch\nfrom torch import nn\n\nEPS = 1e-6\n\nclass Norm(nn.Module):\n    """RMS norm."""\n'
    "    def __init__(self, n: int):\n        super().__init__()\n        self._eps = EPS\n        self.weight = nn.Parameter(torch.ones(n))\n"
    "    def forward(self, x):\n        v = x.float().pow(2).mean(-1, keepdim=True)\n"
    "        return (self.weight * (x * torch.rsqrt(v + self._eps))).to(x.dtype)\n",
    "parameter called input": "import torch\ndef f(input):\n    return torch.tanh(input)\n",
    "slices and special": "import torch\ndef f(x):\n    h = x.shape[-1] // 2\n    return torch.special.erf(x[..., :h]) * x[..., h:].to(torch.float32)\n",
    "masked": "import torch\ndef f(x, limit=7.0):\n    return torch.where(x > limit, torch.full_like(x, limit), x).masked_fill(x < 0, float('-inf'))\n",
}

BAD = {
    "import os\ndef f(x):\n    return x": (1, "import os"),
    "from os import system\ndef f(x):\n    return x": (1, "import os"),
    "import torch\nfrom torch.utils import cpp_extension\n": (2, "torch.utils"),
    "from . import secrets\n": (1, "import ."),
    "from torch import *\n": (1, "one by one"),
    "import torch\ndef f(x):\n    return x.__class__.__mro__": (3, "__class__"),
    "import torch\ndef f(x):\n    return torch.serialization.os.system('id')": (3, "torch.serialization"),
    "import torch\ndef f(x):\n    return torch.load('x')": (3, "torch.load"),
    "import torch\ndef f(x):\n    t = torch\n    return t.hub": (3, "module `torch`"),
    "import torch.nn.functional as F\ndef f(x):\n    return F.warnings.sys": (3, "warnings"),
    "from torch.nn.functional import warnings\n": (1, "warnings"),
    "def f(x):\n    return getattr(x, 'shape')": (2, "getattr"),
    "def g():\n    eval = 1\n    return eval\ndef f(x):\n    return eval('x')": (2, "eval"),
    "def f(x):\n    return '{0.__class__}'.format(x)": (2, ".format"),
    "def f(x):\n    return x._base": (2, "private"),
    "def f(x):\n    return x.numpy()": (2, ".numpy"),
    "def f(x):\n    global y\n    y = x": (2, "global"),
    "import torch\n@torch.compile\ndef f(x):\n    return x": (2, "decorators"),
    "class A:\n    def __getattribute__(self, n):\n        return n": (2, "__getattribute__"),
    "class A(metaclass=type):\n    pass": (1, "metaclass"),
    "open('x', 'w')\n": (1, "top level"),
    "async def f(x):\n    return x": (1, "plain function"),
    "def f(x:\n": (1, "not valid Python"),
    "def f(x):\n    return __import__('os')": (2, "__import__"),
}


@pytest.mark.parametrize("source", GOOD.values(), ids=GOOD.keys())
def test_an_ordinary_reference_is_accepted(source: str) -> None:
    assert scan(source) == []


@pytest.mark.parametrize(
    ("source", "expected"), BAD.items(), ids=[text.splitlines()[-1][:40] for text in BAD]
)
def test_a_refusal_names_the_line_and_the_thing(source: str, expected: tuple[int, str]) -> None:
    line, words = expected
    assert any(finding.line == line and words in finding.message for finding in scan(source)), scan(source)


@pytest.mark.parametrize(
    "source",
    ["x = " + "(" * 50_000, "x = " + "-" * 90_000 + "1", "\0"],
    ids=["parentheses", "minuses", "nul"],
)
def test_sources_made_to_break_the_parser_are_refused(source: str) -> None:
    assert scan(source)


def test_an_oversized_source_is_refused_unparsed() -> None:
    assert "characters long" in scan("x" * (MAX_SOURCE_CHARS + 1))[0].message
