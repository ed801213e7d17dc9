"""The @triton.jit helpers that a printed module carries, as source text. Pure.

Triton's language has no tanh, log1p or expm1, and its interpreter has no libdevice, so these are written out. Each keeps
NaN and is accurate near zero, where the naive formula cancels.
"""

from __future__ import annotations

# Worst relative errors against fp64 over [-88, 88] in fp32 are asserted in tests/contract/kernels/test_helpers.py.
HELPERS: dict[str, str] = {
    "relu": """
@triton.jit
def relu(x):
    # max(x, 0) that keeps NaN, as torch does
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
""",
    "tanh": """
@triton.jit
def tanh(x):
    # 2 * sigmoid(2x) - 1 cancels near zero: a series there
    x_sq = x * x
    series = x * (1 + x_sq * (-0.33333333 + x_sq * 0.13333333))
    return tl.where(x_sq < 0.01, series, 2 * tl.sigmoid(2 * x) - 1)
""",
    "log1p": """
@triton.jit
def log1p(x):
    # Kahan: the rounding error of 1 + x is divided out again
    u = 1 + x
    corrected = tl.log(u) * (x / (u - 1))
    return tl.where(u == 1, x, tl.where(u == x, tl.log(u), corrected))
""",
    "expm1": """
@triton.jit
def expm1(x):
    # exp(x) - 1 cancels near zero: a series there
    series = x * (1 + x * (0.5 + x * (0.16666667 + x * (0.041666667 + x * (0.0083333333 + x * 0.0013888889)))))
    return tl.where(tl.abs(x) < 0.25, series, tl.exp(x) - 1)
""",
    "atan": """
@triton.jit
def atan(x):
    # Cephes: |x| is brought below tan(pi / 8), where a polynomial is exact to fp32
    size = tl.abs(x)
    large = size > 2.414213562373095
    middle = size > 0.4142135623730951
    reduced = tl.where(large, -1.0 / size, tl.where(middle, (size - 1) / (size + 1), size))
    start = tl.where(large, 1.5707963267948966, tl.where(middle, 0.7853981633974483, 0.0))
    z = reduced * reduced
    tail = ((8.05374449538e-2 * z - 1.38776856032e-1) * z + 1.99777106478e-1) * z - 3.33329491539e-1
    angle = start + (tail * z * reduced + reduced)
    return tl.where(x < 0, -angle, angle)
""",
    "larger": """
@triton.jit
def larger(a, b):
    # tl.max drops NaN; torch.amax keeps it
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "smaller": """
@triton.jit
def smaller(a, b):
    # tl.min drops NaN; torch.amin keeps it
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "softplus": """
@triton.jit
def softplus(x):
    # log(1 + exp(x)), which is x itself beyond 20
    return tl.where(x > 20.0, x, log1p(tl.exp(x)))
""",
    "uniform_block": """
@triton.jit
def uniform_block(seed, start, BLOCK_SIZE: tl.constexpr):
    # Philox makes four numbers at once: element i takes number i % 4 of counter i // 4
    a, b, c, d = tl.rand4x(seed, start // 4 + tl.arange(0, BLOCK_SIZE // 4))
    return tl.join(tl.join(a, c), tl.join(b, d)).reshape(BLOCK_SIZE)
""",
    "uniform_at": """
@triton.jit
def uniform_at(seed, offsets):
    # Philox makes four numbers at once: element i takes number i % 4 of counter i // 4
    a, b, c, d = tl.rand4x(seed, offsets // 4)
    which = offsets % 4
    return tl.where(which < 2, tl.where(which == 0, a, b), tl.where(which == 2, c, d))
""",
    "uniform_row": """
@triton.jit
def uniform_row(seed, start, n_cols: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    # Four at once where every row begins with a whole counter
    if n_cols % 4 == 0:
        numbers = uniform_block(seed, start, BLOCK_SIZE)
    else:
        numbers = uniform_at(seed, start + tl.arange(0, BLOCK_SIZE))
    return numbers
""",
    "uniform_tile": """
@triton.jit
def uniform_tile(seed, start, n_cols: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    # Four at once where every row begins with a whole counter
    if n_cols % 4 == 0:
        a, b, c, d = tl.rand4x(seed, start // 4 + tl.arange(0, BLOCK_SIZE // 4)[None, :])
        numbers = tl.join(tl.join(a, c), tl.join(b, d)).reshape(BLOCK_ROWS, BLOCK_SIZE)
    else:
        numbers = uniform_at(seed, start + tl.arange(0, BLOCK_SIZE)[None, :])
    return numbers
""",
    "sign": """
@triton.jit
def sign(x):
    # -1, 0 or 1; 0 for NaN, as in torch
    return tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, 0.0))
""",
}
NEEDS = {
    "uniform_row": ("uniform_block", "uniform_at"),
    "uniform_tile": ("uniform_at",),
    "softplus": ("log1p",),
}

# Constants that a reader knows by name. Values within fp32 rounding of these are printed by name.
CONSTANTS: dict[str, tuple[float, str]] = {
    "SQRT_2_OVER_PI": (0.7978845608028654, "sqrt(2 / pi)"),
    "SQRT_8_OVER_PI": (1.5957691216057308, "2 * sqrt(2 / pi)"),
    "SQRT_1_2": (0.7071067811865476, "sqrt(1 / 2)"),
    "ONE_OVER_SQRT_2_PI": (0.3989422804014327, "1 / sqrt(2 * pi)"),
    "GELU_CUBIC": (0.044715, "cubic coefficient of the tanh approximation of GELU"),
    "GELU_CUBIC_SLOPE": (0.134145, "3 * GELU_CUBIC"),
    "SELU_SCALE": (1.0507009873554805, "SELU's scale"),
    "SELU_ALPHA": (1.6732632423543772, "SELU's alpha"),
    "SELU_ALPHA_SCALE": (1.7580993408473766, "SELU's alpha * scale"),
    "LOWEST": (-3.4028234663852886e38, "the lowest fp32: like -inf, but LOWEST - LOWEST is 0"),
    "LN_2": (0.6931471805599453, "log(2)"),
    "LOG2_E": (1.4426950408889634, "1 / log(2): exp(x) = exp2(x * LOG2_E)"),
}


def helper_sources(names: set[str]) -> list[str]:
    """Sources of the named helpers and of what they call, each once, callees first."""
    order: list[str] = []

    def visit(name: str) -> None:
        for needed in NEEDS.get(name, ()):
            visit(needed)
        if name not in order:
            order.append(name)

    for name in HELPERS:
        if name in names:
            visit(name)
    return [HELPERS[name].strip("\n") for name in order]


def named_constant(value: float) -> str | None:
    """The name of a well-known constant."""
    for name, (known, _) in CONSTANTS.items():
        if abs(value - known) <= 1e-12 * abs(known):
            return name
    return None
