"""A kernel library of the supported layout, as small as it can be; no line of it comes from a real one."""

from __future__ import annotations

PYPROJECT = """\
[project]
name = "mini_kernel"
version = "1.2.3"

[tool.ruff]
line-length = 100
"""
SETUP = """\
EXTRAS = {
    "dev": [
        "transformers>=4.52.0",
        "ruff>=0.12.0,<0.16.0",
    ],
}
"""
OPS_INIT = """\
from mini_kernel.ops.gate import MiniGateFunction  # noqa: F401
from mini_kernel.ops.gate import gate_backward  # noqa: F401
from mini_kernel.ops.gate import gate_forward  # noqa: F401
"""
OPS_GATE = """\
import torch
import triton

@triton.jit
def _gate_forward_kernel(x_ptr):
    pass

class MiniGateFunction(torch.autograd.Function):
    pass
"""
OPS_UTILS = """\
def ensure_contiguous(fn):
    return fn

def calculate_settings(n):
    return n, 4
"""
TRANSFORMERS_INIT = """\
from typing import TYPE_CHECKING

from mini_kernel.transformers.gate import MiniGate  # noqa: F401

if TYPE_CHECKING:
    from mini_kernel.transformers.patch import apply_to_llama  # noqa: F401


def __getattr__(name):
    lazy = {
        "apply_to_llama",
    }
    if name in lazy:
        return None
    raise AttributeError(name)


__all__ = [
    "MiniGate",
]
"""
TRANSFORMERS_GATE = """\
import torch.nn as nn

class MiniGate(nn.Module):
    def extra_repr(self):
        return "gate"
"""
FUNCTIONAL = """\
from mini_kernel.ops import MiniGateFunction


def liger_gate(a, b):
    return MiniGateFunction.apply(a, b)


def liger_last(x):
    return x
"""
TEST_UTILS = """\
def set_seed(seed=42):
    pass

def assert_verbose_allclose(tensor1, tensor2, rtol=1e-05, atol=1e-08, max_print=5, extra_info=""):
    pass

def supports_bfloat16():
    return False
"""
BENCHMARK_UTILS = """\
def _test_memory(func):
    pass

def run_benchmarks(bench_test_fn):
    pass
"""
TEMPLATE = """\
## Summary
<!--- required --->

<!---
## Details
optional
--->

## Testing Done
- Hardware Type: <BLANK>
- [ ] run `make test` to ensure correctness
"""


def mini_library(**changes: str | None) -> dict[str, str]:
    """The library's files; `changes` replaces texts by the names above in lower case, None removes a file."""
    root = "src/mini_kernel"
    texts: dict[str, tuple[str, str]] = {
        "pyproject": ("pyproject.toml", PYPROJECT),
        "setup": ("setup.py", SETUP),
        "utils": (f"{root}/utils.py", 'def infer_device():\n    return "cpu"\n'),
        "ops_init": (f"{root}/ops/__init__.py", OPS_INIT),
        "ops_gate": (f"{root}/ops/gate.py", OPS_GATE),
        "ops_utils": (f"{root}/ops/utils.py", OPS_UTILS),
        "transformers_init": (f"{root}/transformers/__init__.py", TRANSFORMERS_INIT),
        "transformers_gate": (f"{root}/transformers/gate.py", TRANSFORMERS_GATE),
        "functional": (f"{root}/transformers/functional.py", FUNCTIONAL),
        "test_utils": ("test/utils.py", TEST_UTILS),
        "benchmark_utils": ("benchmark/scripts/utils.py", BENCHMARK_UTILS),
        "template": (".github/pull_request_template.md", TEMPLATE),
    }
    files = {}
    for name, (path, text) in texts.items():
        changed = changes.get(name, text)
        if changed is not None:
            files[path] = changed
    return files
