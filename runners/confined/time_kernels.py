"""Times a candidate and its baselines on a GPU, interleaved, in one process.

Usage (through boot.py): time_kernels.py JOB.json RESULT.json OWN_ROOT. The clock and its functions are taken before the
candidate is imported. Each call is preceded by a write larger than the L2 cache; inputs get fresh values in place between
calls and rotate through several buffers; the candidate is timed twice under two names, which gives the noise floor.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import random
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

EVENT, SYNCHRONIZE, CLOCK, GRAPH = (
    torch.cuda.Event,
    torch.cuda.synchronize,
    time.perf_counter_ns,
    torch.cuda.CUDAGraph,
)
FLUSH_BYTES = 256 * 1024**2
BUFFERS = 3
POOL = 2**25  # normal values that fresh inputs are cut from, at a random place
SECONDS_A_PASS = 0.6
REPEATS = (15, 60)
WARM_UP = 3


class Inputs:
    """One set of tensors for a call, with the gradient that comes in."""

    def __init__(
        self, specs: list[dict[str, Any]], shape: tuple[int, int], dtype: torch.dtype, axes: dict[str, Any]
    ) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        n_rows, n_cols = shape
        sizes = {**axes["sizes"], "*": n_rows, "n_rows": n_rows}
        if axes["columns"]:
            sizes[axes["columns"]] = n_cols
        labels = sizes.get(axes["labels"], n_cols)
        for spec in specs:
            size = [sizes[axis] for axis in spec["shape"]]
            size += [n_cols] if "*" in spec["shape"] and not axes["columns"] else []
            if spec["dtype"] == "int64":
                self.tensors[spec["name"]] = torch.randint(0, labels, size, device="cuda")
            elif spec["dtype"] == "bool":
                self.tensors[spec["name"]] = torch.rand(size, device="cuda") < 0.5
            else:
                value = torch.randn(size, device="cuda", dtype=dtype)
                self.tensors[spec["name"]] = value.requires_grad_(spec["needs_grad"])
        self.gradients: list[torch.Tensor] = []

    def refresh(self, pool: torch.Tensor, draw: random.Random) -> None:
        """New values in the same memory: what a cache keyed on an address would get wrong."""
        incoming = [one for one in self.gradients if one.dim()]  # that of a loss stays 1
        for tensor in [*self.tensors.values(), *incoming]:
            if tensor.is_floating_point():
                start = draw.randrange(pool.numel() // 2) // 8 * 8
                repeats = -(-tensor.numel() // (pool.numel() // 2))
                fresh = pool[start : start + pool.numel() // 2].repeat(repeats)[: tensor.numel()]
                tensor.data.copy_(fresh.view(tensor.shape))  # .data: saved tensors are timed here, not judged

    def differentiable(self) -> list[torch.Tensor]:
        return [tensor for tensor in self.tensors.values() if tensor.requires_grad]


class Provider:
    """One way to compute the op."""

    def __init__(self, name: str, forward: Callable[[Inputs], Any], inputs: list[Inputs]) -> None:
        self.name, self.forward, self.inputs = name, forward, inputs
        self.error: str | None = None
        self.graphs: dict[str, list[Any]] = {}
        self.outputs = [self.run_forward(each) for each in inputs]

    def run_forward(self, inputs: Inputs) -> list[torch.Tensor]:
        produced = self.forward(inputs)
        return [
            o
            for o in (produced if isinstance(produced, tuple | list) else [produced])
            if isinstance(o, torch.Tensor)
        ]

    def gradients(self, outputs: list[torch.Tensor], inputs: Inputs, *, retain: bool) -> Any:
        pairs = [(o, g) for o, g in zip(outputs, inputs.gradients, strict=False) if o.requires_grad]
        return torch.autograd.grad(
            [o for o, _ in pairs],
            inputs.differentiable(),
            [g.to(o.dtype) for o, g in pairs],
            allow_unused=True,
            retain_graph=retain,
        )

    def call(self, which: str, position: int) -> Any:
        inputs = self.inputs[position]
        if which == "forward":
            return self.run_forward(inputs)
        if which == "backward":
            return self.gradients(self.outputs[position], inputs, retain=True)
        return self.gradients(self.run_forward(inputs), inputs, retain=False)

    def capture(self, which: str) -> None:
        """A CUDA graph of each buffer's call, where the provider allows it."""
        graphs = []
        for position in range(len(self.inputs)):
            for _ in range(WARM_UP):
                self.call(which, position)
            SYNCHRONIZE()
            graph = GRAPH()
            # On the stream that the forward ran on: autograd runs a backward where its forward was.
            with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
                self.call(which, position)
            graphs.append(graph)
        self.graphs[which] = graphs


def interleaved(
    calls: dict[str, Callable[[int], Any]],
    inputs: list[Inputs],
    flush: torch.Tensor,
    pool: torch.Tensor,
    draw: random.Random,
) -> dict[str, list[float]]:
    """Milliseconds of each call, taken in shuffled rounds on one stream; the source scan refuses any other stream."""
    names = list(calls)
    for name in names:
        for position in range(min(WARM_UP, len(inputs))):
            calls[name](position)
    SYNCHRONIZE()
    started = CLOCK()
    for name in names:
        flush.zero_()
        calls[name](0)
    SYNCHRONIZE()
    round_s = max((CLOCK() - started) / 1e9, 1e-6)
    # The number of rounds is not round, so that no warm-up can be counted on.
    rounds = max(REPEATS[0], min(REPEATS[1], int(SECONDS_A_PASS / round_s))) + draw.randint(0, 3)
    events: dict[str, list[tuple[Any, Any]]] = {name: [] for name in names}
    for number in range(rounds):
        position = number % len(inputs)
        inputs[position].refresh(pool, draw)
        draw.shuffle(names)
        for name in names:
            flush.zero_()
            begin, end = EVENT(enable_timing=True), EVENT(enable_timing=True)
            begin.record()
            calls[name](position)
            end.record()
            events[name].append((begin, end))
    SYNCHRONIZE()
    return {name: [begin.elapsed_time(end) for begin, end in pairs] for name, pairs in events.items()}


def copy_tbps() -> float:
    """Device-to-device copy bandwidth, read + written, in TB/s: the roofline of this card, now."""
    source = torch.empty(4 * 1024**3, dtype=torch.int8, device="cuda")
    destination = torch.empty_like(source)
    times = []
    for _ in range(12):
        begin, end = EVENT(enable_timing=True), EVENT(enable_timing=True)
        begin.record()
        destination.copy_(source)
        end.record()
        SYNCHRONIZE()
        times.append(begin.elapsed_time(end))
    return 2 * source.numel() / (sorted(times)[len(times) // 2] * 1e-3) / 1e12


def peak_bytes(provider: Provider) -> int:
    """Peak memory of one forward and backward, its inputs and gradient included."""
    inputs = provider.inputs[0]
    provider.outputs = []
    SYNCHRONIZE()
    torch.cuda.empty_cache()
    own = sum(t.numel() * t.element_size() for t in [*inputs.tensors.values(), *inputs.gradients])
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    kept = provider.call("full", 0)
    SYNCHRONIZE()
    peak = torch.cuda.max_memory_allocated() - before + own
    del kept
    return peak


def agrees(provider: Provider, eager: Provider) -> bool:
    """Whether the candidate's results on the last, fresh values are eager's: what was timed was the op."""
    for position in range(len(provider.inputs)):
        for mine, theirs in zip(
            provider.call("forward", position), eager.call("forward", position), strict=False
        ):
            scale = float(theirs.float().abs().mean()) + 1e-6
            if not torch.allclose(mine.float(), theirs.float(), rtol=5e-2, atol=5e-2 * scale):
                return False
    return True


class Bench:
    """Times every provider at one point after another."""

    def __init__(self, job: dict[str, Any], reference: Any, functions: dict[str, Any]) -> None:
        self.job, self.reference, self.functions = job, reference, functions
        self.op = job["target"]["op"]
        self.scalars = {scalar["name"]: scalar["default"] for scalar in self.op["scalars"]}
        self.flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
        self.pool = torch.randn(POOL, device="cuda")
        self.draw = random.Random(CLOCK())  # noqa: S311 - not a secret
        self.problems: list[str] = []

    def point(self, shape: tuple[int, int], dtype_name: str) -> list[dict[str, Any]]:
        dtype = getattr(torch, dtype_name)
        inputs = [Inputs(self.op["tensors"], shape, dtype, self.job["axes"]) for _ in range(BUFFERS)]
        eager = self.forward_of("eager", inputs)
        assert eager is not None
        for each in inputs:
            # loss.backward() gives 1: a loss is timed as it is used.
            outputs = Provider("eager", eager, [each]).outputs[0]
            each.gradients = [torch.randn_like(o) if o.dim() else torch.ones_like(o) for o in outputs]
        providers, found = [], []
        for name in ("candidate", "candidate again", "eager", "compile", "incumbent"):
            forward = self.forward_of(name, inputs)
            if forward is None:
                continue
            try:
                providers.append(Provider(name, forward, inputs))
            except Exception as error:  # noqa: BLE001 - one provider that fails is a result
                found.append(
                    self.record(
                        name,
                        shape,
                        dtype_name,
                        "forward",
                        error=f"{type(error).__name__}: {str(error)[:300]}",
                    )
                )
        passes = ["forward", "backward", "full"] if inputs[0].differentiable() else ["forward"]
        for which in passes:
            found += self.pass_(which, providers, inputs, shape, dtype_name)
        by_name = {provider.name: provider for provider in providers}
        if (
            "candidate" in by_name
            and "eager" in by_name
            and not agrees(by_name["candidate"], by_name["eager"])
        ):
            self.problems.append(
                f"{shape[0]}x{shape[1]} {dtype_name}: the candidate's result on fresh values is not the op's"
            )
        for provider in providers:
            provider.graphs.clear()
        for provider in providers:
            if provider.name != "candidate again" and "full" in passes:
                peak = peak_bytes(provider)
                for record in found:
                    if record["provider"] == provider.name and record["pass_"] == "full":  # noqa: S105 - a pass, not a password
                        record["peak_bytes"] = peak
        return found

    def pass_(
        self,
        which: str,
        providers: list[Provider],
        inputs: list[Inputs],
        shape: tuple[int, int],
        dtype_name: str,
    ) -> list[dict[str, Any]]:
        calls: dict[str, Callable[[int], Any]] = {}
        for provider in providers:
            calls[provider.name] = lambda position, provider=provider: provider.call(which, position)
        failed = []
        for name in list(calls):
            try:
                calls[name](0)
            except Exception as error:  # noqa: BLE001 - one provider that fails is a result
                del calls[name]
                failed.append(
                    self.record(
                        name, shape, dtype_name, which, error=f"{type(error).__name__}: {str(error)[:300]}"
                    )
                )
        plain = interleaved(calls, inputs, self.flush, self.pool, self.draw)
        captured: dict[str, Callable[[int], Any]] = {}
        for provider in providers:
            if provider.name not in calls:
                continue
            try:
                provider.capture(which)
            except Exception as error:  # noqa: BLE001 - not every provider can be captured; then it has no such column
                print(f"no CUDA graph of {provider.name} {which}: {type(error).__name__}: {str(error)[:200]}")
                with contextlib.suppress(RuntimeError):
                    SYNCHRONIZE()
                continue
            captured[provider.name] = lambda position, graphs=provider.graphs[which]: graphs[
                position
            ].replay()
        graphs = interleaved(captured, inputs, self.flush, self.pool, self.draw) if captured else {}
        return failed + [
            self.record(name, shape, dtype_name, which, ms=ms, graph_ms=graphs.get(name, []))
            for name, ms in plain.items()
        ]

    def record(
        self, provider: str, shape: tuple[int, int], dtype: str, which: str, **values: Any
    ) -> dict[str, Any]:
        return {
            "provider": provider,
            "shape": list(shape),
            "dtype": dtype,
            "pass_": which,
            "ms": [],
            "graph_ms": [],
            "peak_bytes": None,
            "error": None,
            **values,
        }

    def forward_of(self, name: str, inputs: list[Inputs]) -> Callable[[Inputs], Any] | None:
        if name in ("eager", "compile"):
            n_cols = inputs[0].tensors[self.op["tensors"][0]["name"]].shape[-1]
            call = self.reference.bind(n_cols)
            if name == "compile":
                if not self.job["compiled"]:
                    return None
                # Its backward is run more than once; donated buffers would forbid that.
                setattr(importlib.import_module("torch._functorch.config"), "donated_buffer", False)  # noqa: B010
                compiled = torch.compile(call, dynamic=False)
                return lambda each: compiled(each.tensors)
            return lambda each: call(each.tensors)
        target = self.job["incumbent"] if name == "incumbent" else self.job["target"]
        if target is None:
            return None
        function, order = (
            self.functions["incumbent" if name == "incumbent" else "candidate"],
            target["call_order"],
        )
        scalars = {
            **self.scalars,
            **{scalar["name"]: scalar["default"] for scalar in target["op"]["scalars"]},
        }
        return lambda each: function.apply(
            *(each.tensors[n] if n in each.tensors else scalars[n] for n in order)
        )


class Eager:
    """The reference, loaded with our own loader; imported only after the candidate and its package were."""

    def __init__(self, op: dict[str, Any], own_root: str) -> None:
        sys.path.append(own_root)
        from kernels.op_spec import OpSpec
        from kernels.roles import guess_roles
        from runners.reference import load_reference

        spec = OpSpec.model_validate(op)
        self.reference = load_reference(spec, Path(tempfile.mkdtemp()))
        self.roles = next(iter(guess_roles(spec, self.reference)))
        self.scalars = {scalar.name: scalar.default for scalar in self.roles.op.scalars}

    def bind(self, n_cols: int) -> Any:
        call = self.roles.bind(self.reference, {"n_cols": n_cols}, self.scalars)
        return call.run


def honest_clock(threads: int) -> list[str]:
    """Whether importing and running a candidate left the clock and the process as they were."""
    problems = []
    if (torch.cuda.Event, torch.cuda.synchronize, time.perf_counter_ns) != (EVENT, SYNCHRONIZE, CLOCK):
        problems.append("the candidate replaced the timer")
    if threading.active_count() > threads:
        problems.append("the candidate left a thread running")
    return problems


def main() -> None:
    job_file, result_file, own_root = sys.argv[1:]
    warnings.simplefilter("ignore")
    job = json.loads(Path(job_file).read_text())
    torch.cuda.init()
    bandwidth = copy_tbps()
    threads = threading.active_count()
    functions = {}
    for name in ("target", "incumbent"):
        if job[name] is not None:
            module = importlib.import_module(job[name]["module"])
            functions["candidate" if name == "target" else "incumbent"] = getattr(
                module, job[name]["function_class"]
            )
    problems = honest_clock(threads)
    SYNCHRONIZE()
    bench = Bench(job, Eager(job["target"]["op"], own_root), functions)
    timed: list[dict[str, Any]] = []
    with torch.cuda.stream(torch.cuda.Stream()):
        for shape in job["shapes"]:
            for dtype in job["dtypes"]:
                timed += bench.point((shape[0], shape[1]), dtype)
                SYNCHRONIZE()
                torch.cuda.empty_cache()
                print(f"timed {shape[0]}x{shape[1]} {dtype}", flush=True)
    # torch.compile keeps worker threads of its own by now, so only the clock is looked at again.
    problems += [problem for problem in honest_clock(10**6) if problem not in problems]
    Path(result_file).write_text(
        json.dumps({"copy_tbps": bandwidth, "timed": timed, "problems": [*problems, *bench.problems]})
    )


if __name__ == "__main__":
    main()
