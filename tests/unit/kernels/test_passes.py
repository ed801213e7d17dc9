"""Each pass alone: what it rewrites, and what it must leave alone."""

from __future__ import annotations

import math

import pytest

from kernels.derivation import Unsupported
from kernels.exponentials import powers_of_two
from kernels.passes.branches import simplify_branches
from kernels.passes.final_sums import sums_last
from kernels.passes.graph import Graph
from kernels.passes.layout import Layout, candidate_layouts
from kernels.passes.one_hot import close_one_hot_sums
from kernels.passes.padding import choose_padding
from kernels.passes.products import flatten_products
from kernels.passes.program import build_program
from kernels.passes.saved import choose_saved
from kernels.passes.stages import Target, plan_stages
from kernels.passes.tanh_forms import simplify_tanh
from kernels.passes.uniform_factors import uniform_factors
from kernels.quantity import Quantity
from kernels.row_program import Axis, Index, Map, Reduce, RowProgram, Tensor

ROWS, COLS = ("n_rows",), ("n_cols",)


@pytest.fixture
def graph() -> Graph:
    """x and dy full, weight a column, count a row."""
    axes = {name: Axis(name=name, size=Quantity.of(name)) for name in ("n_rows", "n_cols")}
    tensors = {
        "x": Tensor(name="x", dims=(ROWS, COLS), dtype="float", kind="input"),
        "dy": Tensor(name="dy", dims=(ROWS, COLS), dtype="float", kind="tangent"),
        "weight": Tensor(name="weight", dims=(COLS,), dtype="float", kind="input"),
        "count": Tensor(name="count", dims=(ROWS,), dtype="float", kind="input"),
    }
    return Graph(tensors, axes)


def output(name: str = "y") -> Tensor:
    return Tensor(name=name, dims=(ROWS, COLS), dtype="float", kind="output", like="x")


def program(graph: Graph, node: int) -> RowProgram:
    return build_program(graph, [(output(), node, ())], Layout(ROWS, COLS))


# --- graph: common subexpressions and identities ---


def test_equal_nodes_are_one_node(graph: Graph):
    x = graph.load("x")
    assert graph.map("exp", x) == graph.map("exp", graph.load("x"))


@pytest.mark.parametrize(
    ("fn", "left", "right", "kept"),
    [
        ("add", "x", 0, "x"),
        ("add", 0, "x", "x"),
        ("sub", "x", 0, "x"),
        ("mul", "x", 1, "x"),
        ("div", "x", 1, "x"),
    ],
)
def test_identities_fold(graph: Graph, fn: str, left, right, kept: str):
    nodes = [graph.load(v) if isinstance(v, str) else graph.const(v) for v in (left, right)]
    assert graph.map(fn, *nodes) == graph.load(kept)


def test_a_product_with_zero_is_not_zero_because_of_nan(graph: Graph):
    x = graph.load("x")
    assert graph.number(graph.map("mul", x, graph.const(0))) is None


def test_constants_fold_but_not_to_infinity(graph: Graph):
    assert graph.number(graph.map("mul", graph.const(6), graph.const(7))) == 42
    assert graph.number(graph.map("div", graph.const(1), graph.const(0))) is None


def test_not_of_a_comparison_is_not_the_opposite_comparison_because_of_nan(graph: Graph):
    less = graph.map("lt", graph.load("x"), graph.const(0))
    assert graph.is_map(graph.map("not", less), "not")


# --- branches ---


def test_relu_inside_its_own_condition_is_x(graph: Graph):
    x, dy, zero = graph.load("x"), graph.load("dy"), graph.const(0)
    relu = graph.map("maximum", x, zero)
    root = graph.map("where", graph.map("le", relu, zero), zero, graph.map("mul", dy, relu))
    after, names = simplify_branches(graph, [root])
    condition, then, otherwise = after.is_map(names[root], "where") or (0, 0, 0)
    assert after.is_map(condition, "le") == (names[x], names[zero])
    assert after.number(then) == 0
    assert after.is_map(otherwise, "mul") == (names[dy], names[x])


def test_relu_outside_its_condition_stays(graph: Graph):
    x, zero = graph.load("x"), graph.const(0)
    relu = graph.map("maximum", x, zero)
    root = graph.map("where", graph.map("le", graph.load("dy"), zero), zero, relu)
    after, names = simplify_branches(graph, [root])
    assert after.is_map((after.is_map(names[root], "where") or (0, 0, 0))[2], "maximum")


# --- products ---


def test_constants_merge_and_row_values_come_first(graph: Graph):
    x, count = graph.load("x"), graph.load("count")
    # ((-0.5 * count) * x) * 2  ->  -(count * x)
    root = graph.map("mul", graph.map("mul", graph.map("mul", graph.const(-0.5), count), x), graph.const(2))
    after, names = flatten_products(graph, [root], {"n_cols"})
    inner = after.is_map(names[root], "neg")
    assert inner
    assert after.is_map(inner[0], "mul") == (names[count], names[x])


def shifted_exponentials(graph: Graph) -> tuple[int, int]:
    """exp(x - max x), and its sum over the row."""
    x = graph.load("x")
    largest = graph.add(Reduce(fn="max", arg=x, axes=COLS))
    exponentials = graph.map("exp", graph.map("sub", x, largest))
    return exponentials, graph.add(Reduce(fn="sum", arg=exponentials, axes=COLS))


def test_softmax_divides_once_a_row(graph: Graph):
    exponentials, total = shifted_exponentials(graph)
    root = graph.map("div", exponentials, total)
    after, names = flatten_products(graph, [root], {"n_cols"})
    power, reciprocal = after.is_map(names[root], "mul") or (None, None)
    assert power == names[exponentials]
    assert after.is_map(reciprocal, "div") == (after.const(1), names[total])


@pytest.mark.parametrize(("then", "power"), [(None, True), ("neg", True), ("log", False), ("rsqrt", False)])
def test_exponentials_below_the_rows_largest_are_powers_of_two(graph: Graph, then: str | None, power: bool):
    """Not where a logarithm or a root would tell a number below 2**-126 from 0."""
    exponentials, total = shifted_exponentials(graph)
    result = graph.map("mul", graph.map(then, exponentials) if then else exponentials, total)
    made = program(graph, result)
    exponential = next(i for i, n in enumerate(made.nodes) if isinstance(n, Map) and n.fn == "exp")
    assert powers_of_two(made) == (frozenset({exponential}) if power else frozenset())


def test_an_exponential_beside_a_given_number_is_no_power_of_two(graph: Graph):
    """The whole row may lie far below it, and then the logarithm of the sum of such exponentials is a number still."""
    exponentials = graph.map("exp", graph.map("sub", graph.load("x"), graph.load("count")))
    total = graph.add(Reduce(fn="sum", arg=exponentials, axes=COLS))
    assert (
        powers_of_two(program(graph, graph.map("mul", exponentials, graph.map("log", total)))) == frozenset()
    )


def test_an_exponential_of_the_element_alone_is_no_power_of_two(graph: Graph):
    """exp(-100) is a number in fp32, and somebody may ask for it."""
    assert powers_of_two(program(graph, graph.map("exp", graph.load("x")))) == frozenset()


def test_a_divisor_that_may_be_tiny_stays_a_divisor(graph: Graph):
    """1 / 1e-40 is infinite in fp32 where x / 1e-40 may not be."""
    x = graph.load("x")
    total = graph.add(Reduce(fn="sum", arg=graph.map("exp", x), axes=COLS))
    root = graph.map("div", x, total)
    after, names = flatten_products(graph, [root], {"n_cols"})
    assert after.is_map(names[root], "div") == (names[x], names[total])


def test_a_shared_factor_is_left_whole(graph: Graph):
    x, dy = graph.load("x"), graph.load("dy")
    shared = graph.map("mul", x, dy)
    one, other = graph.map("mul", shared, graph.const(3)), graph.map("exp", shared)
    after, names = flatten_products(graph, [one, other], {"n_cols"})
    assert after.is_map(names[other], "exp") == (names[shared],)
    assert names[shared] in (after.is_map(names[one], "mul") or ())


# --- tanh ---


def test_one_plus_tanh_is_a_sigmoid(graph: Graph):
    x = graph.load("x")
    gelu = graph.map(
        "mul", graph.map("mul", graph.const(0.5), x), graph.map("add", graph.const(1), graph.map("tanh", x))
    )
    after, names = simplify_tanh(graph, [gelu])
    sigmoid = after.map("sigmoid", after.map("mul", after.const(2), names[x]))
    assert after.is_map(names[gelu], "mul") == (names[x], sigmoid)


def test_the_slope_of_tanh_shares_the_sigmoid_only_where_there_is_one(graph: Graph):
    t = graph.map("tanh", graph.load("x"))
    slope = graph.map("sub", graph.const(1), graph.map("mul", t, t))
    alone, names = simplify_tanh(graph, [slope])
    assert alone.is_map(names[slope], "sub")
    beside, names = simplify_tanh(graph, [slope, graph.map("add", t, graph.const(1))])
    assert beside.is_map(names[slope], "mul")


def test_tanh_of_softplus_needs_no_logarithm(graph: Graph):
    x = graph.load("x")
    softplus = graph.map("log1p", graph.map("exp", x))
    guarded = graph.map("where", graph.map("gt", x, graph.const(20)), x, softplus)
    bare = graph.map("tanh", softplus)
    root = graph.map("tanh", guarded)
    after, names = simplify_tanh(graph, [root, bare])
    assert after.is_map(names[root], "where")
    # Without the guard exp(x) overflows, and inf / inf is NaN where tanh is 1.
    assert after.is_map(names[bare], "tanh")


# --- uniform factors ---


def test_a_factor_of_the_row_leaves_its_sum(graph: Graph):
    count, x, dy = graph.load("count"), graph.load("x"), graph.load("dy")
    body = graph.map("mul", dy, x)
    root = graph.add(Reduce(fn="sum", arg=graph.map("div", graph.map("mul", count, body), count), axes=COLS))
    after, names = uniform_factors(graph, [root], {"n_cols"}, set())
    total = after.add(Reduce(fn="sum", arg=names[body], axes=COLS))
    assert after.is_map(names[root], "div") == (after.map("mul", names[count], total), names[count])


def test_an_output_is_not_taken_apart(graph: Graph):
    """softmax: y is saved, and sum(dy * y) must go on reading it."""
    y = graph.map("div", graph.map("exp", graph.load("x")), graph.load("count"))
    root = graph.add(Reduce(fn="sum", arg=graph.map("mul", graph.load("dy"), y), axes=COLS))
    after, names = uniform_factors(graph, [root, y], {"n_cols"}, {y})
    assert after.nodes[names[root]] == Reduce(
        fn="sum", arg=after.map("mul", names[graph.load("dy")], names[y]), axes=COLS
    )


def test_a_shared_product_is_taken_apart_only_where_two_sums_become_one(graph: Graph):
    count, x, dy = graph.load("count"), graph.load("x"), graph.load("dy")
    shared = graph.map("mul", count, dy)
    one = graph.add(Reduce(fn="sum", arg=graph.map("mul", shared, x), axes=COLS))
    other = graph.add(Reduce(fn="sum", arg=graph.map("mul", dy, x), axes=COLS))
    after, names = uniform_factors(graph, [one, shared], {"n_cols"}, set())
    assert isinstance(after.nodes[names[one]], Reduce)
    after, names = uniform_factors(graph, [one, shared, other], {"n_cols"}, set())
    assert after.is_map(names[one], "mul") == (names[count], names[other])


# --- sums over rows come last ---


def test_factors_move_inside_the_final_sum(graph: Graph):
    body = graph.map("mul", graph.load("dy"), graph.load("x"))
    total = graph.add(Reduce(fn="sum", arg=body, axes=ROWS))
    alpha = graph.symbol(Quantity.of("alpha"))
    moved = graph.nodes[sums_last(graph, graph.map("mul", alpha, total))]
    assert isinstance(moved, Reduce)
    assert graph.is_map(moved.arg, "mul") == (alpha, body)


def test_a_quotient_of_two_sums_stays(graph: Graph):
    total = graph.add(Reduce(fn="sum", arg=graph.load("x"), axes=ROWS))
    other = graph.add(Reduce(fn="sum", arg=graph.load("dy"), axes=ROWS))
    root = graph.map("div", total, other)
    assert sums_last(graph, root) == root


# --- one-hot sums ---


def test_a_one_hot_row_adds_up_to_its_element(graph: Graph):
    label = graph.map("eq", graph.add(Index(axis="n_cols")), graph.load("count"))
    valid = graph.map("ne", graph.load("count"), graph.const(-100))
    value = graph.map("exp", graph.load("count"))
    chosen = graph.map("where", graph.map("and", label, valid), value, graph.const(0))
    root = graph.add(Reduce(fn="sum", arg=chosen, axes=COLS))
    after, names = close_one_hot_sums(graph, [root])
    assert after.is_map(names[root], "where") == (names[valid], names[value], names[graph.const(0)])


def test_a_comparison_with_another_column_is_no_label(graph: Graph):
    label = graph.map("eq", graph.add(Index(axis="n_cols")), graph.load("weight"))
    root = graph.add(
        Reduce(fn="sum", arg=graph.map("where", label, graph.load("count"), graph.const(0)), axes=COLS)
    )
    after, names = close_one_hot_sums(graph, [root])
    assert isinstance(after.nodes[names[root]], Reduce)


# --- padding ---


def test_a_sum_of_squares_needs_no_mask(graph: Graph):
    x = graph.load("x")
    total = graph.add(Reduce(fn="sum", arg=graph.map("mul", x, x), axes=COLS))
    assert not choose_padding(program(graph, graph.map("mul", x, total))).masked


def test_a_maximum_fills_dead_lanes_with_minus_infinity(graph: Graph):
    x = graph.load("x")
    largest = graph.add(Reduce(fn="max", arg=x, axes=COLS))
    exponential = graph.map("exp", graph.map("sub", x, largest))
    total = graph.add(Reduce(fn="sum", arg=exponential, axes=COLS))
    padding = choose_padding(program(graph, graph.map("div", exponential, total)))
    assert not padding.masked
    assert list(padding.fill.values()) == [-math.inf]


def test_a_centered_sum_needs_a_mask(graph: Graph):
    x = graph.load("x")
    centered = graph.map("sub", x, graph.load("count"))
    total = graph.add(Reduce(fn="sum", arg=graph.map("mul", centered, centered), axes=COLS))
    assert choose_padding(program(graph, graph.map("mul", x, total))).masked


def test_zero_times_an_exponential_of_the_row_needs_a_mask(graph: Graph):
    """exp(0 - m) overflows for a very negative m: 0 * inf in a dead lane would poison the row."""
    x = graph.load("x")
    count = graph.load("count")
    risky = graph.map("exp", graph.map("sub", graph.map("mul", graph.load("weight"), count), count))
    total = graph.add(Reduce(fn="sum", arg=graph.map("mul", x, risky), axes=COLS))
    assert choose_padding(program(graph, graph.map("mul", x, total))).masked


# --- saved values ---


def test_a_result_is_saved_when_it_spares_a_transcendental(graph: Graph):
    x, dy = graph.load("x"), graph.load("dy")
    y = graph.map("sigmoid", x)
    gradient = graph.map("mul", dy, graph.map("mul", y, graph.map("sub", graph.const(1), y)))
    choice = choose_saved(graph, {x, y}, {"y": y}, [gradient], {"n_rows"}, {"n_cols"})
    assert choice.results == ("y",)


def test_inputs_are_kept_when_the_result_spares_nothing(graph: Graph):
    x, dy = graph.load("x"), graph.load("dy")
    y = graph.map("mul", x, x)
    gradient = graph.map("mul", dy, x)
    assert choose_saved(graph, {x, y}, {"y": y}, [gradient], {"n_rows"}, {"n_cols"}).results == ()


def test_the_smallest_set_of_statistics_is_saved(graph: Graph):
    x, dy = graph.load("x"), graph.load("dy")
    total = graph.add(Reduce(fn="sum", arg=graph.map("mul", x, x), axes=COLS))
    rstd = graph.map("rsqrt", total)
    cubed = graph.map("mul", graph.map("mul", rstd, rstd), rstd)
    y = graph.map("mul", x, rstd)
    gradient = graph.map("add", graph.map("mul", dy, rstd), graph.map("mul", x, cubed))
    choice = choose_saved(graph, {x, total, rstd, y}, {"y": y}, [gradient], {"n_rows"}, {"n_cols"})
    assert choice.statistics == (rstd,)


# --- layouts and stages ---


def test_columns_are_what_a_row_reduces(graph: Graph):
    x = graph.load("x")
    total = graph.add(Reduce(fn="sum", arg=x, axes=COLS))
    assert candidate_layouts(graph, [graph.map("sub", x, total)], [(ROWS, COLS)])[0] == Layout(ROWS, COLS)


def test_a_sum_over_everything_that_is_used_again_needs_two_kernels(graph: Graph):
    x = graph.load("x")
    total = graph.add(Reduce(fn="sum", arg=graph.map("mul", x, x), axes=(*ROWS, *COLS)))
    stages = plan_stages(graph, [Target(output(), graph.map("div", x, graph.map("sqrt", total)))])
    assert [s.host for s in stages] == [False, False]
    assert stages[0].program.accumulates[0].tensor in {t.name for t in stages[1].program.tensors}


def test_a_quotient_of_sums_is_finished_on_the_host(graph: Graph):
    loss = graph.add(Reduce(fn="sum", arg=graph.load("x"), axes=(*ROWS, *COLS)))
    count = graph.add(Reduce(fn="sum", arg=graph.load("count"), axes=ROWS))
    scalar = Tensor(name="loss", dims=(), dtype="float", kind="output", like="x")
    stages = plan_stages(graph, [Target(scalar, graph.map("div", loss, count))])
    assert [s.host for s in stages] == [False, True]


def test_a_maximum_over_rows_for_each_column_is_taken_down_the_column(graph: Graph):
    x = graph.load("x")
    largest = graph.add(Reduce(fn="max", arg=x, axes=ROWS))
    stages = plan_stages(graph, [Target(output(), graph.map("sub", x, largest))])
    assert [(s.program.rows, s.program.cols) for s in stages] == [(COLS, ROWS)]


def test_reductions_over_part_of_a_kernels_columns_are_refused(graph: Graph):
    x = graph.load("x")
    rows = graph.add(Reduce(fn="sum", arg=x, axes=ROWS))
    with pytest.raises(Unsupported):
        build_program(
            graph, [(output(), graph.map("sub", x, rows), ())], Layout((), (*ROWS, *COLS)), host=False
        )
