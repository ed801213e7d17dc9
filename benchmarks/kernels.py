"""Derived kernels against eager, torch.compile and the incumbent, in one process on one GPU.

    python -m benchmarks.kernels --out benchmarks/results/h200/elementwise.json --ops relu_squared,swiglu [--shapes 8192x4096] [--no-compile]

Honest: providers are interleaved in a shuffled order, the L2 cache is flushed before each call, inputs get fresh values
each round, the candidate runs twice (A/A) for the noise floor, medians carry 95% confidence intervals, the roofline is
a copy of as many bytes as the pass must move, timed in the same rounds, and the forward of a launch-bound size is timed
under a CUDA graph too. `forward` runs without gradients; a loss whose forward writes the gradient does so in `full`.
The candidate must match the float64 reference before it is timed.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import math
import platform
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import triton

from agents.catalog.lookup import catalog
from benchmarks.incumbents import incumbents
from benchmarks.liger_sweeps import sweep
from kernels.derivation import Derivation, Unsupported
from kernels.derive import derive
from kernels.module_style import ModuleStyle
from kernels.op_spec import OpSpec
from kernels.printer import call_order, print_module
from kernels.trace import trace
from runners.statistics import median_interval, noise_floor

PASSES = ("forward", "backward", "full")
FLUSH_BYTES = 256 * 1024**2  # several times the L2
# The GPU waits this long while the host queues the call, so that device time is measured and not the host's dispatch.
HIDE_LAUNCH_CYCLES = 1_500_000
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "float16": torch.float16}
PROBABILITIES, LOG_PROBABILITIES = (
    {"target": ("kl_div", "jsd", "reverse_kl"), "p": ("tvd",), "q": ("tvd",)},
    {"x": ("kl_div", "jsd", "reverse_kl")},
)


@dataclass
class Candidate:
    """A derived op, printed, imported and ready to call."""

    op: OpSpec
    derivation: Derivation
    source: str
    apply: Callable[..., Any]
    order: list[str]
    reference: Callable[..., Any]


@dataclass
class Samples:
    """Milliseconds of each provider for one pass."""

    ms: dict[str, list[float]] = field(default_factory=dict)


def candidate(name: str, folder: Path, *, wide_rows: bool = False, split_rows: bool = False) -> Candidate:
    """Trace, derive, print and import one catalog op; wide_rows, split_rows: as in kernels.derive. Raises Unsupported."""
    op = catalog().ops[name].op
    namespace: dict[str, Any] = {}
    exec(compile(op.source, f"{name}_reference.py", "exec"), namespace)  # noqa: S102 - the catalog's own text
    reference = namespace[op.entry]
    traced = trace(op, reference)
    derivation = derive(traced, wide_rows=wide_rows, split_rows=split_rows)
    style = ModuleStyle.standalone(name)
    source = print_module(derivation, style)
    path = folder / f"{name}_derived.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"{name}_derived", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return Candidate(
        op, derivation, source, getattr(module, style.function_class).apply, call_order(derivation), reference
    )


def _takes(incumbent: Callable[..., Any], inputs: list[torch.Tensor]) -> bool:
    """Whether the incumbent's kernel takes this shape; some refuse rows wider than a block."""
    try:
        incumbent(*inputs)
    except RuntimeError as error:
        print(f"the incumbent does not take this shape: {str(error)[:160]}", flush=True)
        return False
    return True


class Point:
    """One op at one shape and dtype: inputs, providers, samples."""

    def __init__(self, one: Candidate, n_rows: int, n_cols: int, dtype: torch.dtype, *, with_compile: bool):
        self.one, self.n_rows, self.n_cols, self.dtype = one, n_rows, n_cols, dtype
        self.inputs = [self._tensor(spec) for spec in one.op.tensors]
        self.scalars = {spec.name: spec.default for spec in one.op.scalars}
        self.leaves = [
            t
            for t, spec in zip(self.inputs, one.op.tensors, strict=True)
            if spec.needs_grad and spec.dtype == "float"
        ]
        for leaf in self.leaves:
            leaf.requires_grad_(True)
        self.fresh = [torch.randn_like(t) if t.is_floating_point() else None for t in self.inputs]
        by_name = dict(zip([spec.name for spec in one.op.tensors], self.inputs, strict=True)) | self.scalars
        ordered = [by_name[key] for key in one.order]

        def ours() -> Any:
            return one.apply(*ordered)

        def eager() -> Any:
            return one.reference(*self.inputs, **self.scalars)

        self.providers: dict[str, Callable[[], Any]] = {
            "candidate": ours,
            "candidate_again": ours,
            "eager": eager,
        }
        if with_compile:
            torch._dynamo.reset()
            compiled = torch.compile(one.reference, dynamic=False)
            self.providers["compile"] = lambda: compiled(*self.inputs, **self.scalars)
        theirs = incumbents().get(one.op.name)
        if theirs is not None and _takes(theirs, self.inputs):
            self.providers["incumbent"] = lambda: theirs(*self.inputs)

    def _tensor(self, spec: Any) -> torch.Tensor:
        shape = [size for axis in spec.shape for size in ([self.n_rows] if axis == "*" else [self.n_cols])]
        if spec.dtype == "int64":
            return torch.randint(0, self.n_cols, shape, device="cuda")
        if spec.dtype == "bool":
            return torch.rand(shape, device="cuda") > 0.3
        values = torch.randn(shape, device="cuda", dtype=torch.float32)
        if self.one.op.name in PROBABILITIES.get(spec.name, ()):
            values = values.softmax(-1)
        if self.one.op.name in LOG_PROBABILITIES.get(spec.name, ()):
            values = values.log_softmax(-1)
        return values.to(self.dtype)

    def outputs(self, provider: Callable[[], Any]) -> list[torch.Tensor]:
        found = provider()
        return [
            one
            for one in (found if isinstance(found, tuple | list) else [found])
            if isinstance(one, torch.Tensor)
        ]

    def gradients(
        self, provider: Callable[[], Any], cotangents: list[torch.Tensor]
    ) -> list[torch.Tensor | None]:
        return list(torch.autograd.grad(self.outputs(provider), self.leaves, cotangents, allow_unused=True))

    def cotangents(self) -> list[torch.Tensor]:
        with torch.no_grad():
            return [torch.randn_like(one) for one in self.outputs(self.providers["candidate"])]

    def worst_error(self) -> dict[str, float]:
        """Largest |ours - fp64| / max |fp64| over outputs and gradients, and the same for eager."""
        cotangents = self.cotangents()
        doubled = [t.detach().double() if t.is_floating_point() else t for t in self.inputs]
        leaves = [
            d.requires_grad_(True) for d, t in zip(doubled, self.inputs, strict=True) if t.requires_grad
        ]
        truth_out = self.one.reference(*doubled, **self.scalars)
        truth_out = list(truth_out) if isinstance(truth_out, tuple | list) else [truth_out]
        truth = [
            *truth_out,
            *torch.autograd.grad(truth_out, leaves, [one.double() for one in cotangents], allow_unused=True),
        ]
        worst = {}
        for name in ("candidate", "eager"):
            got = [*self.outputs(self.providers[name]), *self.gradients(self.providers[name], cotangents)]
            errors = [
                ((g.double() - t).abs().max() / t.abs().max().clamp_min(1e-30)).item()
                for g, t in zip(got, truth, strict=True)
                if t is not None and g is not None
            ]
            worst[name] = max(errors)
        del truth, truth_out, doubled, leaves
        return worst

    def refresh(self, round_: int) -> None:
        """New values in place, so that nothing keyed on an input's address can be reused."""
        with torch.no_grad():
            for tensor, values in zip(self.inputs, self.fresh, strict=True):
                if (
                    values is not None
                    and tensor.dim()
                    and self.one.op.name not in ("kl_div", "jsd", "tvd", "reverse_kl")
                ):
                    tensor.copy_(values).mul_(1.0 + 0.001 * (round_ % 7))

    def time(self, which: str, rounds: int, flush: torch.Tensor) -> Samples:
        samples = Samples({name: [] for name in (*self.providers, "copy")})
        # loss.backward() gives 1: a loss is timed as it is used.
        cotangents = [torch.ones_like(one) if not one.dim() else one for one in self.cotangents()]
        source = torch.empty(max(self.bytes_moved(which) // 2, 1), dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        # Without gradients: a forward that would write them sees only what its inputs require, not torch.no_grad().
        for leaf in self.leaves:
            leaf.requires_grad_(which != "forward")
        events: list[tuple[str, Any, Any]] = []
        for round_ in range(rounds + 3):
            self.refresh(round_)
            order = [*self.providers, "copy"]
            random.shuffle(order)
            for name in order:
                provider = self.providers.get(name, lambda: target.copy_(source))
                outputs = self.outputs(provider) if which == "backward" and name != "copy" else None
                torch.cuda._sleep(HIDE_LAUNCH_CYCLES)
                flush.zero_()
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                if which == "forward" or name == "copy":
                    with torch.no_grad():
                        provider()
                elif which == "backward":
                    torch.autograd.grad(outputs, self.leaves, cotangents, allow_unused=True)
                else:
                    torch.autograd.grad(self.outputs(provider), self.leaves, cotangents, allow_unused=True)
                end.record()
                del outputs
                if round_ >= 3:
                    events.append((name, start, end))
            if round_ % 10 == 9:
                torch.cuda.synchronize()
        torch.cuda.synchronize()
        for leaf in self.leaves:
            leaf.requires_grad_(True)
        for name, start, end in events:
            samples.ms[name].append(start.elapsed_time(end))
        return samples

    def graph_ms(self, name: str, rounds: int, flush: torch.Tensor) -> float:
        """Median of the forward replayed from a CUDA graph: no launch overhead."""
        provider = self.providers[name]
        stream = torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.stream(stream):
            provider()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            provider()
        times = []
        for _ in range(rounds):
            flush.zero_()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            times.append((start, end))
        torch.cuda.synchronize()
        return median_interval([a.elapsed_time(b) for a, b in times])[0]

    def peak_bytes(self, name: str) -> int:
        """Peak of forward + backward above what was allocated without the inputs' gradients."""
        cotangents = self.cotangents()
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
        base = torch.cuda.memory_allocated() - sum(t.nbytes for t in [*self.inputs, *cotangents])
        torch.cuda.reset_peak_memory_stats()
        gradients = torch.autograd.grad(
            self.outputs(self.providers[name]), self.leaves, cotangents, allow_unused=True
        )
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - base
        del gradients
        return peak

    def bytes_moved(self, which: str) -> int:
        traffic = self.one.derivation.traffic
        size = self.n_rows * self.n_cols * torch.finfo(self.dtype).bits // 8
        forward = traffic.forward_tensors * size + traffic.forward_per_row_bytes * self.n_rows
        backward = traffic.backward_tensors * size + traffic.backward_per_row_bytes * self.n_rows
        steps = self.one.derivation.forward_steps
        written = sum(s.program.tensor(w.tensor).kind == "gradient" for s in steps for w in s.program.stores)
        return {"forward": forward - written * size, "backward": backward, "full": forward + backward}[which]


def copy_tbps() -> float:
    """Copy bandwidth of this GPU now, TB/s read + written."""
    source = torch.empty(1024**3, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    times = []
    for _ in range(30):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        target.copy_(source)
        end.record()
        times.append((start, end))
    torch.cuda.synchronize()
    return 2 * source.nbytes / (median_interval([a.elapsed_time(b) for a, b in times[5:]])[0] * 1e-3) / 1e12


def measure(
    one: Candidate,
    shape: tuple[int, int],
    dtype: str,
    options: argparse.Namespace,
    tbps: float,
    flush: torch.Tensor,
) -> list[dict[str, Any]]:
    """Records of one op at one point."""
    point = Point(one, *shape, DTYPES[dtype], with_compile=options.compile)
    errors = point.worst_error()
    records = []
    peaks = {name: point.peak_bytes(name) for name in point.providers if name != "candidate_again"}
    for which in PASSES:
        if which != "forward" and not point.leaves:
            continue
        samples = point.time(which, options.rounds, flush)
        moved = point.bytes_moved(which)
        record: dict[str, Any] = {
            "op": one.op.name,
            "shape": list(shape),
            "dtype": dtype,
            "pass": which,
            "large_copy_tbps": round(tbps, 3),
            "bytes": moved,
        }
        for name, times in samples.ms.items():
            if name != "candidate_again":
                middle, low, high = median_interval(times)
                record |= {
                    f"{name}_ms": round(middle, 5),
                    f"{name}_interval_ms": [round(low, 5), round(high, 5)],
                }
        record["noise_floor"] = round(noise_floor(samples.ms["candidate"], samples.ms["candidate_again"]), 4)
        # A backward whose gradient is there already moves nothing: it has no roofline.
        record["copy_tbps"] = round(moved / (record["copy_ms"] * 1e-3) / 1e12, 3)
        record["roofline_pct"] = (
            round(100 * record["copy_ms"] / record["candidate_ms"], 1) if moved > 2**20 else None
        )
        record |= {"peak_bytes": peaks["candidate"], "eager_peak_bytes": peaks["eager"], "n": options.rounds}
        if "incumbent" in peaks:
            record["incumbent_peak_bytes"] = peaks["incumbent"]
        if which == "forward" and moved < 64 * 1024**2:
            record |= {
                f"{name}_graph_ms": round(point.graph_ms(name, options.rounds, flush), 5)
                for name in ("candidate", "eager")
            }
        record |= {"worst_error": errors["candidate"], "eager_worst_error": errors["eager"]}
        records.append(record)
    return records


def environment() -> dict[str, Any]:
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return {
        "gpu": torch.cuda.get_device_name(0),
        "driver": driver.splitlines()[0] if driver else "unknown",
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "command": "python -m benchmarks.kernels " + " ".join(sys.argv[1:]),
    }


def main() -> None:
    """Measure the ops and print a line a point; `--out` gets every record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ops", required=True, help="catalog names, separated by commas")
    parser.add_argument(
        "--shapes",
        default="8192x4096,8192x16384",
        help='rows x columns, separated by commas; "liger": its own sweep',
    )
    parser.add_argument("--dtypes", default="bfloat16", help="separated by commas")
    parser.add_argument("--rounds", type=int, default=40, help="samples a provider and pass")
    parser.add_argument("--wide-rows", action="store_true", help="derive with rows read in loops")
    parser.add_argument("--split-rows", action="store_true", help="derive with rows split over programs")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave torch.compile out")
    parser.add_argument("--commit", default="", help="commit of this repository, for the record")
    parser.add_argument(
        "--incumbent", default="", help="version and commit of the liger_kernel beside it, for the record"
    )
    parser.add_argument("--out", type=Path, help="write the records here")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error(
            "no GPU that torch can use here: run it on a machine with one, with a torch built for it"
        )
    tbps = copy_tbps()
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    records: list[dict[str, Any]] = []
    problems: list[dict[str, str]] = []
    print(f"copy {tbps:.2f} TB/s", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.ops.split(","):
            try:
                one = candidate(
                    name, Path(folder), wide_rows=options.wide_rows, split_rows=options.split_rows
                )
            except Unsupported as unsupported:
                problems.append({"op": name, "problem": f"Unsupported: {unsupported.reason}"})
                print(f"{name}: unsupported: {unsupported.reason}", flush=True)
                continue
            for rows, cols in shapes_of(name, options.shapes):
                text = f"{rows}x{cols}"
                for dtype in options.dtypes.split(","):
                    try:
                        found = measure(one, (rows, cols), dtype, options, tbps, flush)
                    except Exception as error:  # noqa: BLE001 - one op's failure is a result; the others go on
                        problems.append(
                            {
                                "op": name,
                                "shape": text,
                                "problem": f"{type(error).__name__}: {str(error)[:500]}",
                            }
                        )
                        print(
                            f"{name} {text} {dtype}: {type(error).__name__}: {str(error)[:200]}", flush=True
                        )
                        torch.cuda.empty_cache()
                        continue
                    records += found
                    for record in found:
                        print(line(record), flush=True)
            save(records, problems, options)


def save(records: list[dict[str, Any]], problems: list[dict[str, str]], options: argparse.Namespace) -> None:
    """Write what there is; called after every op, so that an interrupted run keeps its points."""
    if not options.out:
        return
    options.out.parent.mkdir(parents=True, exist_ok=True)
    result = {
        "environment": {**environment(), "commit": options.commit, "incumbent": options.incumbent},
        "records": records,
        "problems": problems,
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def shapes_of(op: str, wanted: str) -> list[tuple[int, int]]:
    """`--shapes`: rows x columns, or "liger" for the shapes of Liger's own benchmark of this op."""
    if wanted == "liger":
        return sweep(op)
    return [(int(rows), int(cols)) for rows, cols in (text.split("x") for text in wanted.split(","))]


def line(record: dict[str, Any]) -> str:
    """One record for the terminal."""
    others = "  ".join(
        f"{name} {record[f'{name}_ms']:.4f} ({record[f'{name}_ms'] / record['candidate_ms']:.2f}x)"
        for name in ("eager", "compile", "incumbent")
        if f"{name}_ms" in record
    )
    return (
        f"{record['op']:<20} {record['shape'][0]}x{record['shape'][1]} {record['dtype']} {record['pass']:<8} ours {record['candidate_ms']:.4f} "
        f"{record['roofline_pct'] or math.nan:5.1f}%  {others}  err {record['worst_error']:.1e}/{record['eager_worst_error']:.1e}"
    )


if __name__ == "__main__":
    main()
