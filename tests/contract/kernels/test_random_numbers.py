"""`philox_uniform` is Triton's tl.rand4x bit for bit, and dropout derived from it draws the same mask in both directions."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from agents.catalog.lookup import catalog
from kernels.derivation import Unsupported
from kernels.derive import derive
from kernels.module_style import ModuleStyle
from kernels.op_spec import OpSpec, ScalarSpec
from kernels.printer import print_module
from kernels.random_numbers import SOURCE, draws_uniform
from tests.contract.kernels.catalog_cases import assert_close, case, run, trace_source

# Zero, one, the largest of a word, beyond a word, negative.
SEEDS = [0, 1, 2**32 - 1, 2**40 + 12345, -7]
PROGRAM = '''
import json, os, sys, tempfile
os.environ["TRITON_INTERPRET"] = "1"
from runners.interpreter import repair
repair()
import torch
from pathlib import Path
from kernels.random_numbers import SOURCE
from tests.contract.kernels.interpreted import load
body = """import triton
import triton.language as tl


@triton.jit
def draw(Y, seed_ptr, start, N: tl.constexpr):
    a, b, c, d = tl.rand4x(tl.load(seed_ptr), tl.arange(0, N // 4).to(tl.int64) + start)
    offsets = 4 * tl.arange(0, N // 4)
    tl.store(Y + offsets, a)
    tl.store(Y + offsets + 1, b)
    tl.store(Y + offsets + 2, c)
    tl.store(Y + offsets + 3, d)
"""
given = json.load(sys.stdin)
namespace = {"torch": torch}
exec(SOURCE, namespace)
answers = []
with tempfile.TemporaryDirectory() as folder:
    module = load(body, "draws", Path(folder))
    for value in given["seeds"]:
        seed, y = torch.tensor(value), torch.empty(4096)
        module.draw[(1,)](y, seed, 0, N=4096)
        mine = namespace["philox_uniform"](torch.empty(64, 64), seed).flatten()
        same = namespace["philox_uniform"](torch.empty(64, 64), value).flatten()
        answers.append({"equal": torch.equal(y, mine) and torch.equal(mine, same), "mean": mine.mean().item(),
                        "low": mine.min().item(), "high": mine.max().item()})
json.dump(answers, sys.stdout)
'''
DROPOUT = (
    f"import torch\n\n{SOURCE}\n\ndef f(x, seed: int = 7, p: float = 0.3):\n"
    "    return torch.where(philox_uniform(x, seed) >= p, x / (1 - p), 0.0)\n"
)
SCALARS = (ScalarSpec(name="seed", default=7), ScalarSpec(name="p", default=0.3))


@pytest.fixture(scope="module")
def draws() -> list[dict[str, float]]:
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps({"seeds": SEEDS}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-2000:]
    return json.loads(process.stdout)


@pytest.mark.parametrize("index", range(len(SEEDS)))
def test_the_reference_draws_what_triton_draws(draws: list[dict[str, float]], index: int):
    assert draws[index]["equal"]
    assert 0 <= draws[index]["low"] < draws[index]["high"] < 1
    # 4096 uniform numbers: the mean's standard deviation is 1 / sqrt(12 * 4096) = 0.0045; five of them.
    assert abs(draws[index]["mean"] - 0.5) < 0.0226


def test_a_seed_that_is_a_number_stays_a_run_time_argument():
    traced = trace_source(OpSpec(name="f", entry="f", source=DROPOUT, scalars=SCALARS))
    assert traced.fixed == {}
    module = print_module(derive(traced), ModuleStyle.standalone("f"))
    assert module.count("= uniform_block(seed, ") == 2
    assert "seed.to(tl.float32)" not in module
    assert_close(run([case(OpSpec(name="f", entry="f", source=DROPOUT, scalars=SCALARS))])["f"])


def test_nothing_but_the_seed_is_kept():
    derivation = derive(trace_source(OpSpec(name="f", entry="f", source=DROPOUT, scalars=SCALARS)))
    assert derivation.saved == ()


@pytest.mark.parametrize(
    "expression",
    ["torch.where(philox_uniform(x.transpose(-1, -2), seed) > p, x.transpose(-1, -2), 0.0)",  # its own order of elements
     "torch.softmax(torch.where(philox_uniform(x, seed) > p, x, 0.0), -1)"],
)  # fmt: skip
def test_the_mask_follows_the_elements_whatever_the_schedule(expression: str):
    head, _, _ = DROPOUT.rpartition("return")
    op = OpSpec(name="f", entry="f", source=f"{head}return {expression}\n", scalars=SCALARS)
    assert_close(run([case(op)])["f"])


def test_the_mask_is_the_same_in_loops_that_run_back_and_forth():
    """Each block of a wide row draws its own numbers, whichever end its loop begins at."""
    head, _, _ = DROPOUT.rpartition("return")
    source = f"{head}return torch.softmax(torch.where(philox_uniform(x, seed) > p, x, 0.0), -1)\n"
    op = OpSpec(name="f", entry="f", source=source, scalars=SCALARS)
    made = case(op, wide_rows=True)
    assert "for done in range(" in made["module"]
    assert_close(run([{**made, "sizes": [{"*": [2], "n_rows": 2, "n_cols": n} for n in (10000, 8195)]}])["f"])


@pytest.mark.parametrize("name", ["bias_dropout_add", "dropout_add"])
def test_rows_that_begin_with_a_whole_counter_draw_four_at_once(name: str):
    # 4 columns: one counter a row; 24: a partly dead block; 1100: more than one tile of a row.
    sizes = [{"*": [3], "n_rows": 3, "n_cols": n} for n in (4, 24, 1100)]
    assert_close(run([{**case(catalog().ops[name].op), "sizes": sizes}])[name])


def test_another_function_of_that_name_is_not_taken_for_it():
    other = SOURCE.replace("range(10)", "range(7)")
    assert draws_uniform(SOURCE)
    assert not draws_uniform(other)
    with pytest.raises(Unsupported):
        derive(
            trace_source(OpSpec(name="f", entry="f", source=DROPOUT.replace(SOURCE, other), scalars=SCALARS))
        )
