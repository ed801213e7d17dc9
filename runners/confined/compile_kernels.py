"""Records every kernel launch of a candidate, then compiles those kernels for architectures that need not be present.

Usage (through boot.py): compile_kernels.py JOB.json RESULT.json. Loaded by path; imports none of ours. It must run WITHOUT
TRITON_INTERPRET. Launches are recorded instead of made: host code runs with real arguments, no GPU is touched.
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import time
import traceback
import types
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

POINTERS = {
    torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.float64: "*fp64", torch.int64: "*i64",
    torch.int32: "*i32", torch.int8: "*i8", torch.uint8: "*u8", torch.bool: "*i1", torch.int16: "*i16",
}  # fmt: skip
LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu")
F64_ARITHMETIC = re.compile(
    r"^\s*(?:@\S+\s+)?(?:add|sub|mul|fma|mad|div|rcp|sqrt|rsqrt|neg|abs|min|max|setp|selp|ex2|lg2)\S*\.f64",
    re.MULTILINE,
)


class Recorded:
    """One distinct launch: what a compiled kernel would be specialised on."""

    def __init__(self, function: Any, bound: dict[str, Any], options: dict[str, Any], label: str) -> None:
        self.function, self.options, self.label = function, options, label
        self.signature: dict[str, str] = {}
        self.constants: dict[tuple[int, ...], Any] = {}
        self.attributes: dict[tuple[int, ...], Any] = {}
        self.floats: list[str] = []
        for position, parameter in enumerate(function.params):
            value = bound.get(parameter.name, parameter.default if parameter.has_default else None)
            self._argument(position, parameter, value)

    def _argument(self, position: int, parameter: Any, value: Any) -> None:
        name, path = parameter.name, (position,)
        if parameter.is_constexpr or value is None:
            self.signature[name], self.constants[path] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            self.signature[name] = POINTERS[value.dtype]
            self.attributes[path] = [["tt.divisibility", 16]]
        elif isinstance(value, bool):
            self.signature[name] = "i1"
        elif isinstance(value, int):
            if value == 1 and not parameter.do_not_specialize:
                self.signature[name], self.constants[path] = "constexpr", 1
                return
            self.signature[name] = "i32" if -(2**31) <= value < 2**31 else "i64"
            if value % 16 == 0 and not parameter.do_not_specialize:
                self.attributes[path] = [["tt.divisibility", 16]]
        elif isinstance(value, float):
            self.signature[name] = "fp32"
            self.floats.append(name)
        else:
            raise TypeError(
                f"{self.function.__name__} was launched with {name} = {type(value).__name__}, which can't be compiled offline"
            )

    def key(self) -> str:
        return repr(
            (
                self.function.__name__,
                self.signature,
                sorted(self.constants.items()),
                sorted(self.attributes),
                sorted(self.options.items()),
            )
        )

    def source(self, *, fp64_scalars: bool = False) -> ASTSource:
        signature = {
            name: "fp64" if fp64_scalars and name in self.floats else kind
            for name, kind in self.signature.items()
        }
        return ASTSource(
            fn=self.function, signature=signature, constexprs=self.constants, attrs=self.attributes
        )


class Recorder:
    """Stands in for launching."""

    def __init__(self) -> None:
        self.launches: dict[str, Recorded] = {}
        self.label = ""
        recorder = self

        def run(function: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> None:  # noqa: ARG001 - Triton's signature
            options = {name: kwargs.pop(name) for name in LAUNCH_OPTIONS if name in kwargs}
            bound = dict(zip(function.arg_names, args, strict=False)) | {
                k: v for k, v in kwargs.items() if k in function.arg_names
            }
            recorded = Recorded(function, bound, options, recorder.label)
            recorder.launches.setdefault(recorded.key(), recorded)

        def tuned(tuner: Any, *args: Any, **kwargs: Any) -> None:
            tuner.fn.run(*args, **kwargs, **tuner.configs[0].all_kwargs())

        JITFunction.run = run  # pyright: ignore[reportAttributeAccessIssue]
        Autotuner.run = tuned  # pyright: ignore[reportAttributeAccessIssue]


def record(job: dict[str, Any]) -> list[Recorded]:
    """Run the candidate's forward and backward at every width and dtype, recording launches."""
    recorder = Recorder()
    if not torch.cuda.is_available():
        properties = types.SimpleNamespace(
            multi_processor_count=132,
            name="offline",
            major=9,
            minor=0,
            total_memory=80 * 1024**3,
            warp_size=32,
        )
        torch.cuda.get_device_properties = lambda *_args, **_kwargs: properties
    function = getattr(importlib.import_module(job["module"]), job["function_class"])
    for case in job["cases"]:
        recorder.label = case["label"]
        tensors = {}
        for spec in case["tensors"]:
            dtype = getattr(torch, spec["dtype"])
            tensors[spec["name"]] = torch.zeros(spec["shape"], dtype=dtype).requires_grad_(
                spec["requires_grad"]
            )
        arguments = [
            tensors[name] if name in tensors else case["scalars"][name] for name in job["call_order"]
        ]
        produced = function.apply(*arguments)
        outputs = [
            o
            for o in (produced if isinstance(produced, tuple | list) else [produced])
            if isinstance(o, torch.Tensor) and o.requires_grad
        ]
        wanted = [tensor for tensor in tensors.values() if tensor.requires_grad]
        if outputs and wanted:
            torch.autograd.grad(outputs, wanted, [torch.ones_like(o) for o in outputs], allow_unused=True)
    return list(recorder.launches.values())


def target(arch: str) -> GPUTarget:
    if arch.startswith("sm_"):
        return GPUTarget("cuda", int(arch.removeprefix("sm_")), 32)
    return GPUTarget("hip", arch, 64)


def compile_one(recorded: Recorded, arch: str) -> dict[str, Any]:
    """Compile for one architecture and read registers, spills, shared memory and address arithmetic from the result."""
    started = time.monotonic()
    result: dict[str, Any] = {
        "kernel": recorded.function.__name__,
        "label": recorded.label,
        "arch": arch,
        "error": None,
        **recorded.options,
    }
    try:
        compiled = triton.compile(recorded.source(), target=target(arch), options=dict(recorded.options))
        result["shared"] = compiled.metadata.shared
        result["num_warps"] = compiled.metadata.num_warps
        result["warp_size"] = target(arch).warp_size
        if arch.startswith("sm_"):
            result |= _cubin_resources(compiled.asm["cubin"])
            result["narrow_offsets"] = narrow_offsets(compiled.asm["ptx"])
            if recorded.floats:
                double = triton.compile(
                    recorded.source(fp64_scalars=True), target=target(arch), options=dict(recorded.options)
                )
                result["f64_instructions"] = len(F64_ARITHMETIC.findall(double.asm["ptx"]))
        else:
            result |= _amd_resources(compiled.asm["amdgcn"])
    except Exception as error:  # noqa: BLE001 - a kernel that does not compile is the finding
        result["error"] = f"{type(error).__name__}: {str(error)[:2000]}"
    result["elapsed_s"] = time.monotonic() - started
    return result


def _cubin_resources(cubin: bytes) -> dict[str, int]:
    tool = Path(str(triton.__file__)).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    file = Path("kernel.cubin")
    file.write_bytes(cubin)
    shown = subprocess.run(
        [str(tool), "--dump-resource-usage", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    usage = {key: int(value) for key, value in re.findall(r"\b(REG|STACK|SHARED|LOCAL):(\d+)", shown)}
    return {"registers": usage.get("REG", 0), "spill_bytes": usage.get("STACK", 0) + usage.get("LOCAL", 0)}


def _amd_resources(text: str) -> dict[str, int]:
    def number(name: str) -> int:
        found = re.search(rf"\.{name}:\s*(\d+)", text)
        return int(found[1]) if found else 0

    # Counts of spilled registers; each is 4 bytes a lane.
    return {
        "registers": number("vgpr_count"),
        "spill_bytes": 4 * (number("vgpr_spill_count") + number("sgpr_spill_count")),
    }


_INSTRUCTION = re.compile(r"^\s*(?:@!?%\w+\s+)?([a-z][\w.]*)\s+(.+);")
_MAX_ELEMENT_BYTES = 8


def narrow_offsets(ptx: str) -> int:
    """Element offsets made from a 32-bit product of the program id: they overflow past 2^31 elements.

    Follows %ctaid through 32-bit moves and additions to a multiplication, and that product to where it is scaled by an
    element's size, which is where it becomes an address. A row index that is widened before it meets a stride is scaled
    by more than that, and is fine.
    """
    ids: set[str] = set()
    products: set[str] = set()
    widened: set[str] = set()
    found = 0
    for line in ptx.splitlines():
        match = _INSTRUCTION.match(line)
        if not match:
            continue
        operation, operands = match[1], [part.strip() for part in match[2].split(",")]
        destination, sources = operands[0], operands[1:]
        if any("%ctaid" in source for source in sources) or (
            operation.startswith(("mov.b32", "mov.u32", "add.s32")) and ids & set(sources)
        ):
            ids.add(destination)
        if (
            operation.startswith(("mul.lo.s32", "mul.lo.u32", "mad.lo.s32", "mad.lo.u32", "shl.b32"))
            and (ids | products) & set(sources[:2])
        ) or (
            operation.startswith(("add.s32", "or.b32", "mov.b32", "mov.u32", "sub.s32"))
            and products & set(sources)
        ):
            products.add(destination)
        elif operation.startswith("mul.wide") and products & set(sources):
            found += _small(sources)
        elif operation.startswith(("cvt.s64.s32", "cvt.u64.u32")) and products & set(sources):
            widened.add(destination)
        elif operation.startswith("shl.b64") and widened & set(sources):
            found += sources[-1].isdigit() and 2 ** int(sources[-1]) <= _MAX_ELEMENT_BYTES
        elif operation.startswith("mul.lo.s64") and widened & set(sources):
            found += _small(sources)
    return found


def _small(sources: list[str]) -> bool:
    return any(source.isdigit() and int(source) <= _MAX_ELEMENT_BYTES for source in sources)


def main() -> None:
    job_file, result_file = sys.argv[1:]
    torch.set_num_threads(1)
    job = json.loads(Path(job_file).read_text())
    report: dict[str, Any] = {"compiled": [], "error": None}
    launches: dict[bool, list[Recorded]] = {}
    for amd in sorted({not arch.startswith("sm_") for arch in job["archs"]}):
        # Host code asks which vendor it is on, e.g. to ask for fewer warps where a warp is 64 wide.
        torch.version.hip = "6.4" if amd else None
        try:
            launches[amd] = record(job)
        except Exception as error:  # noqa: BLE001 - the candidate's host code failed; that is the finding
            report["error"] = f"{type(error).__name__}: {error}"
            report["traceback"] = traceback.format_exc()[-4000:]
    torch.version.hip = None
    for arch in job["archs"]:
        for recorded in launches.get(not arch.startswith("sm_"), []):
            compiled = compile_one(recorded, arch)
            report["compiled"].append(compiled)
            print(f"compiled {arch} {compiled['kernel']} {compiled['label']}", flush=True)
    Path(result_file).write_text(json.dumps(report))


if __name__ == "__main__":
    main()
