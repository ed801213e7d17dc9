"""Activations and their gradients, in ATen's own formulas. Pure."""

from __future__ import annotations

import math

from kernels.passes.aten_elementwise import clamp, rule
from kernels.passes.graph import Graph


@rule("relu.default")
def relu(g: Graph, a: int) -> int:
    return g.map("maximum", a, g.const(0))


@rule("threshold_backward.default")
def threshold_backward(g: Graph, grad: int, a: int, threshold: int) -> int:
    return g.map("where", g.map("le", a, threshold), g.const(0), grad)


@rule("silu.default")
def silu(g: Graph, a: int) -> int:
    return g.map("mul", a, g.map("sigmoid", a))


@rule("silu_backward.default")
def silu_backward(g: Graph, grad: int, a: int) -> int:
    sig = g.map("sigmoid", a)
    slope = g.map("mul", sig, g.map("add", g.map("mul", a, g.map("sub", g.const(1), sig)), g.const(1)))
    return g.map("mul", grad, slope)


@rule("sigmoid_backward.default")
def sigmoid_backward(g: Graph, grad: int, y: int) -> int:
    return g.map("mul", grad, g.map("mul", g.map("sub", g.const(1), y), y))


@rule("tanh_backward.default")
def tanh_backward(g: Graph, grad: int, y: int) -> int:
    return g.map("mul", grad, g.map("sub", g.const(1), g.map("mul", y, y)))


def _gelu_tanh_argument(g: Graph, a: int) -> int:
    cubed = g.map("mul", g.map("mul", a, a), a)
    inner = g.map("add", a, g.map("mul", g.const(0.044715), cubed))
    return g.map("mul", g.const(math.sqrt(2 / math.pi)), inner)


@rule("gelu.default")
def gelu(g: Graph, a: int, *, approximate: str = "none") -> int:
    if approximate == "tanh":
        inner = g.map("tanh", _gelu_tanh_argument(g, a))
    else:
        inner = g.map("erf", g.map("mul", a, g.const(math.sqrt(0.5))))
    return g.map("mul", g.map("mul", g.const(0.5), a), g.map("add", g.const(1), inner))


@rule("gelu_backward.default")
def gelu_backward(g: Graph, grad: int, a: int, *, approximate: str = "none") -> int:
    half = g.const(0.5)
    squared = g.map("mul", a, a)
    if approximate == "tanh":
        inner = g.map("tanh", _gelu_tanh_argument(g, a))
        slope = g.map("sub", g.const(1), g.map("mul", inner, inner))
        chain = g.map("add", g.const(1), g.map("mul", g.const(3 * 0.044715), squared))
        chain = g.map("mul", g.const(math.sqrt(2 / math.pi)), chain)
        right = g.map("mul", g.map("mul", g.map("mul", half, a), slope), chain)
    else:
        inner = g.map("erf", g.map("mul", a, g.const(math.sqrt(0.5))))
        density = g.map("exp", g.map("mul", g.const(-0.5), squared))
        right = g.map("mul", g.map("mul", a, density), g.const(1 / math.sqrt(2 * math.pi)))
    left = g.map("mul", half, g.map("add", g.const(1), inner))
    return g.map("mul", grad, g.map("add", left, right))


def _softplus(g: Graph, a: int) -> int:
    return g.map("log1p", g.map("exp", a))


@rule("softplus.default")
def softplus(g: Graph, a: int, beta: int | None = None, threshold: int | None = None) -> int:
    beta = g.const(1) if beta is None else beta
    threshold = g.const(20) if threshold is None else threshold
    scaled = g.map("mul", a, beta)
    return g.map("where", g.map("gt", scaled, threshold), a, g.map("div", _softplus(g, scaled), beta))


@rule("softplus_backward.default")
def softplus_backward(g: Graph, grad: int, a: int, beta: int, threshold: int) -> int:
    # ATen has exp(z) / (exp(z) + 1), which is sigmoid(z) and overflows for large z without the threshold.
    scaled = g.map("mul", a, beta)
    slope = g.map("mul", grad, g.map("sigmoid", scaled))
    return g.map("where", g.map("gt", scaled, threshold), grad, slope)


@rule("log_sigmoid_forward.default")
def log_sigmoid(g: Graph, a: int) -> int:
    decayed = g.map("exp", g.map("neg", g.map("abs", a)))
    return g.map("sub", g.map("minimum", a, g.const(0)), g.map("log1p", decayed))


@rule("log_sigmoid_backward.default")
def log_sigmoid_backward(g: Graph, grad: int, a: int, _buffer: int) -> int:
    # sigmoid(-x), not 1 - sigmoid(x), which is 0 from x = 17 on.
    return g.map("mul", grad, g.map("sigmoid", g.map("neg", a)))


@rule("mish.default")
def mish(g: Graph, a: int) -> int:
    return g.map("mul", a, g.map("tanh", softplus(g, a)))


@rule("mish_backward.default")
def mish_backward(g: Graph, grad: int, a: int) -> int:
    tanh_softplus = g.map("tanh", softplus(g, a))
    rest = g.map("sub", g.const(1), g.map("mul", tanh_softplus, tanh_softplus))
    slope = g.map("mul", g.map("mul", a, g.map("sigmoid", a)), rest)
    return g.map("mul", grad, g.map("add", tanh_softplus, slope))


def one_of(g: Graph, node: int | None) -> int:
    return g.const(1) if node is None else node


@rule("elu.default")
def elu(
    g: Graph, a: int, alpha: int | None = None, scale: int | None = None, input_scale: int | None = None
) -> int:
    alpha, scale, input_scale = one_of(g, alpha), one_of(g, scale), one_of(g, input_scale)
    negative = g.map("mul", g.map("mul", alpha, scale), g.map("expm1", g.map("mul", a, input_scale)))
    return g.map("where", g.map("gt", a, g.const(0)), g.map("mul", a, scale), negative)


@rule("elu_backward.default")
def elu_backward(
    g: Graph, grad: int, alpha: int, scale: int, input_scale: int, is_result: bool, a: int
) -> int:
    factor = g.map("mul", alpha, scale)
    if is_result:
        negative = g.map("mul", g.map("mul", grad, input_scale), g.map("add", a, factor))
    else:
        slope = g.map("exp", g.map("mul", a, input_scale))
        negative = g.map("mul", g.map("mul", grad, g.map("mul", input_scale, factor)), slope)
    return g.map("where", g.map("le", a, g.const(0)), negative, g.map("mul", grad, scale))


@rule("hardswish.default")
def hardswish(g: Graph, a: int) -> int:
    gate = g.map("minimum", g.map("maximum", g.map("add", a, g.const(3)), g.const(0)), g.const(6))
    return g.map("div", g.map("mul", a, gate), g.const(6))


@rule("hardswish_backward.default")
def hardswish_backward(g: Graph, grad: int, a: int) -> int:
    middle = g.map("mul", grad, g.map("add", g.map("div", a, g.const(3)), g.const(0.5)))
    inner = g.map("where", g.map("lt", a, g.const(3)), middle, grad)
    return g.map("where", g.map("le", a, g.const(-3)), g.const(0), inner)


@rule("hardsigmoid.default")
def hardsigmoid(g: Graph, a: int) -> int:
    gate = g.map("minimum", g.map("maximum", g.map("add", a, g.const(3)), g.const(0)), g.const(6))
    return g.map("div", gate, g.const(6))


@rule("hardsigmoid_backward.default")
def hardsigmoid_backward(g: Graph, grad: int, a: int) -> int:
    inside = g.map("and", g.map("gt", a, g.const(-3)), g.map("lt", a, g.const(3)))
    return g.map("where", inside, g.map("div", grad, g.const(6)), g.const(0))


@rule("hardtanh.default")
def hardtanh(g: Graph, a: int, low: int | None = None, high: int | None = None) -> int:
    return clamp(g, a, g.const(-1) if low is None else low, g.const(1) if high is None else high)


@rule("hardtanh_backward.default")
def hardtanh_backward(g: Graph, grad: int, a: int, low: int, high: int) -> int:
    outside = g.map("or", g.map("le", a, low), g.map("ge", a, high))
    return g.map("where", outside, g.const(0), grad)


@rule("leaky_relu.default")
def leaky_relu(g: Graph, a: int, slope: int | None = None) -> int:
    slope = g.const(0.01) if slope is None else slope
    return g.map("where", g.map("gt", a, g.const(0)), a, g.map("mul", slope, a))


@rule("leaky_relu_backward.default")
def leaky_relu_backward(g: Graph, grad: int, a: int, slope: int, _is_result: bool) -> int:
    return g.map("where", g.map("gt", a, g.const(0)), grad, g.map("mul", slope, grad))


@rule("hardshrink.default")
def hardshrink(g: Graph, a: int, lambd: int | None = None) -> int:
    lambd = g.const(0.5) if lambd is None else lambd
    return g.map("where", g.map("le", g.map("abs", a), lambd), g.const(0), a)


@rule("hardshrink_backward.default")
def hardshrink_backward(g: Graph, grad: int, a: int, lambd: int) -> int:
    return g.map("where", g.map("le", g.map("abs", a), lambd), g.const(0), grad)


@rule("softshrink.default")
def softshrink(g: Graph, a: int, lambd: int | None = None) -> int:
    lambd = g.const(0.5) if lambd is None else lambd
    shrunk = g.map("sub", a, g.map("mul", g.map("sign", a), lambd))
    # The product keeps NaN, which compares as not larger.
    return g.map("where", g.map("gt", g.map("abs", a), lambd), shrunk, g.map("mul", a, g.const(0)))


@rule("softshrink_backward.default")
def softshrink_backward(g: Graph, grad: int, a: int, lambd: int) -> int:
    return g.map("where", g.map("le", g.map("abs", a), lambd), g.const(0), grad)


@rule("asinh.default")
def asinh(g: Graph, a: int) -> int:
    # On |x|, where nothing cancels: asinh is odd.
    size = g.map("abs", a)
    squared = g.map("mul", size, size)
    root = g.map("add", g.const(1), g.map("sqrt", g.map("add", squared, g.const(1))))
    inner = g.map("log1p", g.map("add", size, g.map("div", squared, root)))
    return g.map("mul", g.map("sign", a), inner)


@rule("xlogy.Tensor")
def xlogy(g: Graph, a: int, b: int) -> int:
    product = g.map("mul", a, g.map("log", b))
    return g.map("where", g.map("eq", a, g.const(0)), g.const(0), product)


@rule("lerp.Scalar", "lerp.Tensor")
def lerp(g: Graph, a: int, b: int, weight: int) -> int:
    return g.map("add", a, g.map("mul", weight, g.map("sub", b, a)))
