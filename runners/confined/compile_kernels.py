"""Records every kernel launch of a candidate, then compiles those kernels for architectures that need not be present.

Usage (through boot.py): compile_kernels.py JOB.json RESULT.json. Loaded by path; imports none of ours. It must run WITHOUT
TRITON_INTERPRET. Launches are recorded instead of made: host code runs with real arguments, no GPU is touched.
"""

from __future__ import annotations

import copy
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
MAX_THREADS = 1024
LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu")
F64_ARITHMETIC = re.compile(
    r"^\s*(?:@\S+\s+)?(?:add|sub|mul|fma|mad|div|rcp|sqrt|rsqrt|neg|abs|min|max|setp|selp|ex2|lg2)\S*\.f64",
    re.MULTILINE,
)


class Recorded:
    """One distinct launch: what a compiled kernel would be specialised on."""

    def __init__(
        self, function: Any, bound: dict[str, Any], options: dict[str, Any], label: str, grid: tuple[int, ...]
    ) -> None:
        self.function, self.options, self.label, self.grid = function, options, label, grid
        self.integers: list[int | None] = []  # values of the arguments that stay arguments, in order
        self.signature: dict[str, str] = {}
        self.constants: dict[tuple[int, ...], Any] = {}
        self.attributes: dict[tuple[int, ...], Any] = {}
        self.floats: list[str] = []
        for position, parameter in enumerate(function.params):
            value = bound.get(parameter.name, parameter.default if parameter.has_default else None)
            self._argument(position, parameter, value)
            if self.signature[parameter.name] != "constexpr":
                self.integers.append(value if isinstance(value, int) else None)

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
            sizes: Any = grid(bound) if callable(grid) else grid
            recorded = Recorded(function, bound, options, recorder.label, tuple(int(size) for size in sizes))
            recorder.launches.setdefault(recorded.key(), recorded)

        def tuned(tuner: Any, *args: Any, **kwargs: Any) -> None:
            tuner.fn.run(*args, **kwargs, **tuner.configs[0].all_kwargs())

        JITFunction.run = run  # pyright: ignore[reportAttributeAccessIssue]
        Autotuner.run = tuned  # pyright: ignore[reportAttributeAccessIssue]


def record(job: dict[str, Any], cases: list[dict[str, Any]]) -> list[Recorded]:
    """Run the candidate's host code, forward and backward, on each case; return the distinct launches."""
    recorder = Recorder()
    amd = torch.version.hip is not None
    if amd or not torch.cuda.is_available():
        # An H100's or an MI300X's, so that host code that asks launches as it would there.
        properties = types.SimpleNamespace(
            multi_processor_count=304 if amd else 132,
            name="offline",
            major=9,
            minor=4 if amd else 0,
            total_memory=(192 if amd else 80) * 1024**3,
            warp_size=64 if amd else 32,
        )
        torch.cuda.get_device_properties = lambda *_args, **_kwargs: properties
    function = getattr(importlib.import_module(job["module"]), job["function_class"])
    for case in cases:
        recorder.label = case["label"]
        tensors = {}
        for spec in case["tensors"]:
            dtype = getattr(torch, spec["dtype"])
            value = torch.zeros(spec["shape"], dtype=dtype, device=case["device"])
            tensors[spec["name"]] = value.requires_grad_(spec["requires_grad"])
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
            threads = compiled.metadata.num_warps * target(arch).warp_size
            result["overflows"] = overflowing_offsets(
                compiled.asm["ptx"], recorded.grid, threads, recorded.integers
            )
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


def alternatives(recorded: Recorded, arch: str, num_warps: list[int]) -> list[dict[str, Any]]:
    """The same launch with other numbers of warps, as far as a block may have so many threads."""
    results = []
    for warps in num_warps:
        if warps != recorded.options.get("num_warps", 4) and warps * target(arch).warp_size <= MAX_THREADS:
            other = copy.copy(recorded)
            other.options, other.floats = {**recorded.options, "num_warps": warps}, []
            results.append(compile_one(other, arch) | {"alternative": True})
    return results


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
_PARAMETER = re.compile(r"\[\w+_param_(\d+)\]")
INT32_MAX = 2**31 - 1


def overflowing_offsets(
    ptx: str, grid: tuple[int, ...], threads: int, parameters: list[int | None]
) -> list[str]:
    """32-bit operations on a program id whose result does not fit 32 bits at this launch, as PTX lines.

    Follows the largest value of every register from %ctaid, %tid, constants and the launch's integer arguments through
    32-bit arithmetic; whatever else a register is made from makes it unknown, and unknown values are not judged.
    """
    largest: dict[str, int] = {}
    from_program: set[str] = set()
    found = []
    for line in ptx.splitlines():
        match = _INSTRUCTION.match(line)
        if not match:
            continue
        operation, operands = match[1], [part.strip() for part in match[2].split(",")]
        destination, sources = operands[0], operands[1:]
        value = _largest(operation, sources, largest, grid, threads, parameters)
        if value is None or destination in sources:
            largest.pop(destination, None)
            from_program.discard(destination)
            continue
        if from_program & set(sources) or any("%ctaid" in source for source in sources):
            from_program.add(destination)
            # mul.wide and 64-bit operations have room; everything followed here is 32 bits wide.
            if value > INT32_MAX and operation.startswith(("mul.lo", "mad.lo", "shl.b32")):
                found.append(f"{line.strip()} reaches {value:,}")
        largest[destination] = max(value, largest.get(destination, 0))
    return found


def _largest(
    operation: str,
    sources: list[str],
    largest: dict[str, int],
    grid: tuple[int, ...],
    threads: int,
    parameters: list[int | None],
) -> int | None:
    """The largest value of a 32-bit operation's result, or None when it is not known."""
    if operation.startswith("ld.param") and (parameter := _PARAMETER.search(sources[0])):
        index = int(parameter[1])
        return parameters[index] if index < len(parameters) else None
    values = [_operand(source, largest, grid, threads) for source in sources]
    kind = operation.split(".", maxsplit=1)[0]
    if not any(width in operation for width in (".s32", ".u32", ".b32")) or "wide" in operation:
        return None
    if kind == "and":
        return min((value for value in values if value is not None), default=None)
    if any(value is None or value < 0 for value in values):
        return None
    known = [value for value in values if value is not None]
    if kind == "mov":
        return known[0]
    if kind in ("add", "or"):
        return sum(known)
    if kind == "mul" and ".lo" in operation:
        return known[0] * known[1]
    if kind == "mad" and ".lo" in operation:
        return known[0] * known[1] + known[2]
    if kind == "shl":
        return known[0] << min(known[1], 32)
    if kind == "shr":
        return known[0] >> min(known[1], 32)
    return None


def _operand(source: str, largest: dict[str, int], grid: tuple[int, ...], threads: int) -> int | None:
    if source.startswith("%ctaid."):
        axis = "xyz".index(source[-1])
        return (grid[axis] if axis < len(grid) else 1) - 1
    if source.startswith("%tid."):
        return threads - 1
    if source.startswith("%"):
        return largest.get(source)
    try:
        return int(source, 0)
    except ValueError:
        return None


def main() -> None:
    job_file, result_file = sys.argv[1:]
    torch.set_num_threads(1)
    job = json.loads(Path(job_file).read_text())
    report: dict[str, Any] = {"compiled": [], "error": None, "large_error": None}
    launches: dict[bool, list[Recorded]] = {}
    for amd in sorted({not arch.startswith("sm_") for arch in job["archs"]}):
        # Host code asks which vendor it is on, e.g. to ask for fewer warps where a warp is 64 wide.
        torch.version.hip = "6.4" if amd else None
        try:
            launches[amd] = record(job, job["cases"])
        except Exception as error:  # noqa: BLE001 - the candidate's host code failed; that is the finding
            report["error"] = f"{type(error).__name__}: {error}"
            report["traceback"] = traceback.format_exc()[-4000:]
    torch.version.hip = None
    large: list[Recorded] = []
    try:
        large = record(job, [job["large_case"]])
    except Exception as error:  # noqa: BLE001 - host code that can't run without memory; said in the verdict
        report["large_error"] = f"{type(error).__name__}: {str(error)[:300]}"
    for arch in job["archs"]:
        nvidia = arch.startswith("sm_")
        for recorded in [*launches.get(not nvidia, []), *(large if nvidia else [])]:
            compiled = compile_one(recorded, arch)
            compiled["large"] = recorded in large
            report["compiled"].append(compiled)
            print(f"compiled {arch} {compiled['kernel']} {compiled['label']}", flush=True)
            if not compiled["large"]:
                report["compiled"] += alternatives(recorded, arch, job["num_warps"])
    Path(result_file).write_text(json.dumps(report))


if __name__ == "__main__":
    main()
