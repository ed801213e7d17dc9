"""Small references for tests of the derivation, and the way from source to a traced op or a derivation."""

from __future__ import annotations

from typing import Any

from kernels.derivation import Derivation
from kernels.derive import derive
from kernels.module_style import ModuleStyle
from kernels.op_spec import OpSpec
from kernels.printer import print_module
from kernels.trace import trace
from kernels.traced import TracedOp

IMPORTS = "import math\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
RELU_SQUARED = "def f(x):\n    return F.relu(x).square()\n"
SWIGLU_PACKED = "def f(x):\n    a, b = x.chunk(2, -1)\n    return F.silu(a) * b\n"
RMS_NORM = (
    "def f(x, weight, eps=1e-6):\n"
    "    rstd = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)\n"
    "    return weight * (x * rstd).to(x.dtype)\n"
)


def spec(source: str, entry: str = "f", **fields: Any) -> OpSpec:
    return OpSpec(name=fields.pop("name", "op"), entry=entry, source=IMPORTS + source, **fields)


def traced(source: str, entry: str = "f", **fields: Any) -> TracedOp:
    op = spec(source, entry, **fields)
    namespace: dict[str, Any] = {}
    exec(compile(op.source, "<reference>", "exec"), namespace)  # noqa: S102 - our own references
    return trace(op, namespace[entry])


def derived(source: str, entry: str = "f", **fields: Any) -> Derivation:
    return derive(traced(source, entry, **fields))


def printed(source: str, name: str = "op", **fields: Any) -> str:
    return print_module(derived(source, name=name, **fields), ModuleStyle.standalone(name))


def kernel(module: str, name: str) -> str:
    """One function of a printed module."""
    start = module.index(f"def {name}(")
    end = module.find("\n\n\n", start)
    return module[start:end]
