"""Small kernels whose results say whether the interpreter computes as a GPU does. Run as a script, in a child process.

Usage: interpreter_experiments.py INTERPRETER.py repaired|stock. Prints one JSON object: experiment -> true, false or an error.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from pathlib import Path


def load(path: str):
    spec = importlib.util.spec_from_file_location("repaired_interpreter", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["repaired_interpreter"] = module
    spec.loader.exec_module(module)
    return module


INTERPRETER = load(sys.argv[1])
needed = (
    {repair.name: bool(repair.needed()) for repair in INTERPRETER.REPAIRS} if sys.argv[2] == "stock" else {}
)
if sys.argv[2] == "repaired":
    INTERPRETER.repair()

import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from triton.language.extra import libdevice  # noqa: E402

N = 64
torch.manual_seed(0)
A, B = (torch.randn(N).mul(3).bfloat16() for _ in range(2))


@triton.jit
def binary(x_ptr, y_ptr, o_ptr, OP: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    if OP == "add":
        o = x + y
    elif OP == "mul":
        o = x * y
    elif OP == "less":
        o = (x < y).to(tl.float32)
    elif OP == "maximum":
        o = tl.maximum(x, y)
    elif OP == "sum":
        o = tl.sum(x, axis=0) + tl.zeros((N,), tl.float32)
    elif OP == "max":
        o = tl.max(x, axis=0) + tl.zeros((N,), tl.float32)
    elif OP == "negate":
        o = -x
    elif OP == "cumsum":
        o = tl.cumsum(x, axis=0)
    elif OP == "fma":
        o = tl.fma(x, y, x)
    elif OP == "clamp":
        o = tl.clamp(x, -1.0, 1.0)
    else:
        o = tl.where(x > 0, x, y)
    tl.store(o_ptr + i, o)


def run(op, dtype=torch.bfloat16):
    out = torch.empty(N, dtype=dtype)
    binary[(1,)](A, B, out, op, N)
    return out


@triton.jit
def cast(x_ptr, o_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o_ptr + i, tl.load(x_ptr + i).to(o_ptr.dtype.element_ty))


def casts(values, dtype=torch.bfloat16):
    out = torch.empty(values.numel(), dtype=dtype)
    cast[(1,)](values, out, values.numel())
    return torch.equal(out.isnan(), values.isnan()) and torch.equal(
        out.nan_to_num(7.0), values.to(dtype).nan_to_num(7.0)
    )


@triton.jit
def scaled(x_ptr, o_ptr, alpha, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o_ptr + i, tl.load(x_ptr + i).to(tl.float32) * alpha.to(tl.float32))


@triton.jit
def rows_below(o_ptr, n):
    count = 0.0
    for row in range(tl.program_id(0), n, tl.num_programs(0)):
        count += row
    tl.store(o_ptr, count)


@triton.jit
def dot(x_ptr, y_ptr, o_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    square = i[:, None] * N + i[None, :]
    tl.store(o_ptr + square, tl.dot(tl.load(x_ptr + square), tl.load(y_ptr + square)))


@triton.jit
def accumulate(x_ptr, o_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.atomic_add(o_ptr + i * 0, tl.load(x_ptr + i))


@triton.jit
def library(x_ptr, o_ptr, OP: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    if OP == "tanh":
        o = libdevice.tanh(x)
    elif OP == "rsqrt":
        o = libdevice.rsqrt(x * x + 1.0)
    elif OP == "erf":
        o = libdevice.erf(x)
    elif OP == "pow":
        o = libdevice.pow(x * x, 1.5)
    else:
        o = libdevice.isnan(x).to(tl.float32)
    tl.store(o_ptr + i, o)


def libdevice_is(op, expected):
    x, out = A.float(), torch.empty(N)
    library[(1,)](x, out, op, N)
    return torch.allclose(out, expected(x), rtol=1e-6, atol=1e-7)


def floats():
    out = torch.empty(N)
    scaled[(1,)](A, out, 1.702, N)
    return torch.equal(out, A.float() * torch.tensor(1.702))


def loops():
    out = torch.empty(1)
    rows_below[(1,)](out, 5)
    return out.item() == 10


def dots():
    x, y = torch.randn(16, 16).bfloat16(), torch.randn(16, 16).bfloat16()
    out = torch.empty(16, 16)
    dot[(1,)](x, y, out, 16)
    return torch.allclose(out, x.float() @ y.float(), atol=1e-4)


def atomics():
    out = torch.zeros(1, dtype=torch.bfloat16)
    accumulate[(1,)](torch.ones(8, dtype=torch.bfloat16), out, 8)
    return float(out[0]) == 8.0


def autotunes():
    @triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 32})], key=["n"])
    @triton.jit
    def tuned(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(o_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)

    out = torch.zeros(N)
    tuned[lambda meta: (triton.cdiv(N, meta["BLOCK"]),)](A.float(), out, N)
    return torch.equal(out, A.float())


def helper_says_bfloat16():
    folder = Path(tempfile.mkdtemp())
    (folder / "test").mkdir()
    (folder / "test" / "__init__.py").write_text("")
    (folder / "test" / "utils.py").write_text("def supports_bfloat16():\n    return False\n")
    sys.modules.pop("test", None)
    sys.path.insert(0, str(folder))
    from test.utils import supports_bfloat16

    return supports_bfloat16()


ROUNDING = torch.tensor(
    [1.0059, 1.00390625, 1.01171875, -2.50390625, 3.3895e38, float("inf"), float("nan"), 1e-40]
)
EXPERIMENTS = {
    "bf16_arithmetic/add": lambda: torch.equal(run("add"), A + B),
    "bf16_arithmetic/mul": lambda: torch.equal(run("mul"), A * B),
    "bf16_arithmetic/less": lambda: torch.equal(run("less", torch.float32), (A < B).float()),
    "bf16_arithmetic/maximum": lambda: torch.equal(run("maximum"), torch.maximum(A, B)),
    "bf16_arithmetic/sum": lambda: torch.allclose(run("sum", torch.float32), A.float().sum(), rtol=2**-8),
    "bf16_arithmetic/max": lambda: torch.equal(run("max", torch.float32), A.float().max().expand(N)),
    "bf16_arithmetic/negate": lambda: torch.equal(run("negate"), -A),
    "bf16_arithmetic/cumsum": lambda: torch.allclose(
        run("cumsum").float(), A.float().cumsum(0), rtol=2**-8, atol=2**-6
    ),
    "bf16_arithmetic/fma": lambda: torch.equal(run("fma"), (A.float() * B.float() + A.float()).bfloat16()),
    "bf16_arithmetic/clamp": lambda: torch.equal(run("clamp"), A.clamp(-1, 1)),
    "bf16_arithmetic/where": lambda: torch.equal(run("where"), torch.where(A > 0, A, B)),
    "bf16_arithmetic/dot": dots,
    "bf16_arithmetic/atomic_add": atomics,
    "bf16_cast/round to nearest even": lambda: casts(ROUNDING),
    "bf16_cast/random": lambda: casts(torch.randn(256) * 100),
    "float_arguments/to": floats,
    "index/a loop over an argument": loops,
    "libdevice/tanh": lambda: libdevice_is("tanh", torch.tanh),
    "libdevice/rsqrt": lambda: libdevice_is("rsqrt", lambda x: torch.rsqrt(x * x + 1)),
    "libdevice/erf": lambda: libdevice_is("erf", torch.erf),
    "libdevice/pow": lambda: libdevice_is("pow", lambda x: (x * x) ** 1.5),
    "libdevice/isnan": lambda: libdevice_is("isnan", lambda x: x.isnan().float()),
    "autotune/first configuration": autotunes,
    "sm_count/several": lambda: torch.cuda.get_device_properties(0).multi_processor_count > 1,
    "supports_bfloat16/test helper": helper_says_bfloat16,
}

results = {}
for name, experiment in EXPERIMENTS.items():
    try:
        results[name] = bool(experiment())
    except Exception as error:  # noqa: BLE001 - how the stock interpreter fails is the result
        results[name] = f"{type(error).__name__}: {str(error)[:150]}"
sys.stdout.write(json.dumps({"results": results, "needed": needed, "triton": triton.__version__}) + "\n")
