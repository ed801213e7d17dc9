"""Printed kernels compile for real GPUs, with no GPU: one kernel of each schedule, fp64 scalars as Inductor passes them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from agents.catalog.lookup import catalog
from kernels.derivation import Derivation
from kernels.derive import derive
from kernels.module_style import ModuleStyle
from kernels.printer import kernel_names, print_module
from tests.contract.kernels.catalog_cases import trace_source

# flat · tile with helpers and row_block in tiles · persistent_row and row_block · looped_row and gather · scatter
OPS = ["quick_gelu", "dyt", "rms_norm", "cross_entropy", "embedding"]
SPLIT = "softmax"  # two split_row kernels each way
ARCHS = {"sm_90": ("cuda", 90, 32), "gfx942": ("hip", "gfx942", 64)}
BLOCKS = {
    "flat": 1024,
    "tile": 1024,
    "looped_row": 2048,
    "row_block": 2048,
    "persistent_row": 2048,
    "split_row": 2048,
}
SETTINGS = {"BLOCK_ROWS": 2, "NUM_STAGES": 3, "READ_AGAIN": True, "HAS_GRADIENTS": True, "BLOCK_SPLITS": 512}
# Two f64 PTX lines a scalar are its load and its conversion to fp32; arithmetic in f64 would be more.
PROGRAM = """
import json, re, sys, tempfile, warnings
from pathlib import Path
warnings.simplefilter("ignore")
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from tests.contract.kernels.interpreted import load
answers = {}
with tempfile.TemporaryDirectory() as folder:
    for index, job in enumerate(json.load(sys.stdin)):
        function = getattr(load(job["module"], f"compiled_{index}", Path(folder)), job["kernel"])
        signature = {a: job["types"].get(a, "i32") for a in function.arg_names}
        constants = {(function.arg_names.index(a),): v for a, v in job["constants"].items()}
        signature |= dict.fromkeys(job["constants"], "constexpr")
        # As launched: torch's allocations are aligned, and Triton sees it.
        attributes = {(i,): [["tt.divisibility", 16]] for i, a in enumerate(function.arg_names) if signature[a][0] == "*"}
        kernel = triton.compile(ASTSource(function, signature, constants, attributes), target=GPUTarget(*job["target"]), options={"num_warps": 4})
        text = kernel.asm.get("ptx", "")
        answers[job["id"]] = {"f64": len(re.findall(r"\\.f64", text)), "wide_loads": [len(re.findall(p, text)) for p in (r"cp\\.async\\S*\\.global.*, 0x10", r"ld\\.global\\S*\\.v4")], "size": len(kernel.asm.get("cubin") or kernel.asm["hsaco"])}
json.dump(answers, sys.stdout)
"""


def jobs() -> list[dict]:
    found = []
    for name in [*OPS, SPLIT]:
        derivation: Derivation = derive(trace_source(catalog().ops[name].op), split_rows=name == SPLIT)
        style = ModuleStyle.standalone(name)
        module = print_module(derivation, style)
        steps = [s for s in (*derivation.forward_steps, *derivation.backward_steps) if s.schedule]
        floats = {s.name for s in derivation.op.scalars if isinstance(s.default, float)}
        for kernel, step in zip(kernel_names(derivation, style), steps, strict=True):
            head = module[module.index(f"def {kernel}(") :].split("):", 1)[0]
            arguments = [a.strip().rstrip(",") for a in head.splitlines()[1:] if a.strip()]
            constants = {a.split(":")[0]: 4096 for a in arguments if "tl.constexpr" in a}
            constants |= {"BLOCK_SIZE": BLOCKS[step.schedule.name]} | (
                {name: value for name, value in SETTINGS.items() if name in constants}
            )
            types = {a: "fp64" for a in arguments if a in floats}
            whole = ("target_ptr", "tokens_ptr")
            types |= {a: "*i64" if a in whole else "*fp32" for a in arguments if a.endswith("_ptr")}
            for arch, target in ARCHS.items():
                found.append(
                    {
                        "id": f"{kernel} {arch}",
                        "module": module,
                        "kernel": kernel,
                        "constants": constants,
                        "types": types,
                        "target": target,
                        "scalars": sum(a in floats for a in arguments),
                    }
                )
    return found


@pytest.fixture(scope="module")
def compiled() -> list[tuple[dict, dict]]:
    wanted = jobs()
    code = 'import os; os.environ.pop("TRITON_INTERPRET", None)\nimport tests.contract.kernels.interpreted as i\nos.environ.pop("TRITON_INTERPRET", None)\n'
    process = subprocess.run(
        [sys.executable, "-c", code + PROGRAM],
        input=json.dumps(wanted),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    answers = json.loads(process.stdout)
    return [(job, answers[job["id"]]) for job in wanted]


def test_every_kernel_compiles_for_every_architecture(compiled: list[tuple[dict, dict]]):
    assert len(compiled) == 2 * 2 * len(OPS) + 2 * 4
    assert all(answer["size"] > 0 for _, answer in compiled)


def test_no_arithmetic_in_fp64(compiled: list[tuple[dict, dict]]):
    assert {job["id"]: answer["f64"] for job, answer in compiled if answer["f64"] > 2 * job["scalars"]} == {}


def test_both_loops_over_a_row_load_vectors(compiled: list[tuple[dict, dict]]):
    """The first ahead, into shared memory, the second into registers.

    Triton knows nothing of the values of a range with a negative step, and loads element by element: 1.5x the time."""
    wide = {job["id"]: answer["wide_loads"] for job, answer in compiled}
    a_block = BLOCKS["looped_row"] // (4 * 32) // 4  # elements, threads, elements of a vector
    ahead, direct = wide["_cross_entropy_forward_kernel sm_90"]
    assert ahead == SETTINGS["NUM_STAGES"] * a_block
    assert direct == a_block
