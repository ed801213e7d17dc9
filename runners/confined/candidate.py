"""Runs a candidate on the cases it is given and leaves what it computed in files. Loaded by path; imports none of ours.

Usage (through boot.py): candidate.py JOB.json CASES_FOLDER OUTPUT_FOLDER [INTERPRETER.py]. JOB.json says what to import
and which families to run; it waits for CASES_FOLDER/cases.json. Nothing here judges: inputs come in, bytes go out, and the truth is in another sandbox. Every allocation that the
candidate makes is filled with poison between guard bands, so unwritten and out-of-bounds memory shows.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib
import importlib.util
import json
import math
import os
import sys
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

GUARD = 4096
WAIT_S = 120


def load_interpreter(path: str) -> None:
    """Load the repaired interpreter by its path and repair Triton's."""
    spec = importlib.util.spec_from_file_location("repaired_interpreter", path)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    sys.modules["repaired_interpreter"] = module
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    module.repair()


class Files:
    """Tensors as raw bytes in a folder: nothing is unpickled on either side."""

    def __init__(self, cases: Path, output: Path, torch: Any) -> None:
        self.cases, self.output, self.torch = cases, output, torch
        self.written = 0

    def read(self, file: str, dtype: Any, count: int) -> Any:
        data = bytearray((self.cases / file).read_bytes())
        return (
            self.torch.frombuffer(data, dtype=dtype, count=count)
            if count
            else self.torch.empty(0, dtype=dtype)
        )

    def write(self, tensor: Any) -> dict[str, Any]:
        flat = tensor.detach().cpu().contiguous()
        name = f"{self.written}.bin"
        self.written += 1
        (self.output / name).write_bytes(
            ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size())
        )
        return {
            "file": name,
            "dtype": str(flat.dtype).removeprefix("torch."),
            "shape": list(flat.shape),
            "plain": type(tensor) is self.torch.Tensor,
        }


def fingerprint(storage: Any) -> str:
    flat = storage.detach().cpu().contiguous()
    return hashlib.sha256(ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size())).hexdigest()


def make_watcher(torch: Any) -> Any:
    """The dispatch mode that poisons allocations and records which ATen operations run."""
    from torch.utils._python_dispatch import TorchDispatchMode

    aten = torch.ops.aten
    empties = {
        aten.empty.memory_format,
        aten.empty_strided.default,
        aten.empty_like.default,
        aten.new_empty.default,
        aten.new_empty_strided.default,
    }

    class Watcher(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # otherwise the first operation imports torch._dynamo, which takes seconds

        def __init__(self, poison_sign: int) -> None:
            super().__init__()
            self.poison_sign = poison_sign
            self.guards: list[tuple[Any, int, Any]] = []
            self.operations: list[
                list[Any]
            ] = []  # name, elements of the result, of the smallest of several operands

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if (
                func in empties
                and isinstance(result, torch.Tensor)
                and result.numel()
                and result.layout == torch.strided
            ):
                return self.guarded(result)
            sizes = [
                r.numel()
                for r in (result if isinstance(result, tuple | list) else [result])
                if isinstance(r, torch.Tensor)
            ]
            given = [a.numel() for a in args if isinstance(a, torch.Tensor)]
            self.operations.append([str(func), max(sizes, default=0), min(given) if len(given) > 1 else 1])
            return result

        def guarded(self, result: Any) -> Any:
            span = 1 + sum(
                (size - 1) * stride for size, stride in zip(result.shape, result.stride(), strict=True)
            )
            if result.dtype.is_floating_point:
                value: Any = math.nan
            elif result.dtype == torch.bool:
                value = self.poison_sign > 0
            else:
                value = (
                    torch.iinfo(result.dtype).max
                    // 3
                    * (1 if self.poison_sign > 0 or torch.iinfo(result.dtype).min == 0 else -1)
                )
            base = torch.full((span + 2 * GUARD,), value, dtype=result.dtype, device=result.device)
            self.guards.append((base, span, value))
            guarded = torch.empty(0, dtype=result.dtype, device=result.device)
            return guarded.set_(base.untyped_storage(), GUARD, result.shape, result.stride())

        def broken_guards(self) -> int:
            """Elements outside what was allocated that were overwritten."""
            broken = 0
            for base, span, value in self.guards:
                for band in (base[:GUARD], base[GUARD + span :]):
                    same = band.isnan() if isinstance(value, float) else band == value
                    broken += int((~same).sum())
            return broken

    return Watcher


class Launches:
    """Counts launches by kernel; in a ghost run, makes the named kernels do nothing."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.ghosts: frozenset[str] = frozenset()
        self.races: Counter[str] = Counter()
        self.stores: list[tuple[Any, int]] = []
        from triton.runtime.interpreter import InterpretedFunction
        from triton.runtime.jit import JITFunction

        for kind in (InterpretedFunction, JITFunction):
            self._wrap(kind)
        self._watch_stores()

    def _wrap(self, kind: Any) -> None:
        original = kind.run

        def run(function: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
            name = getattr(function, "__name__", None) or function.fn.__name__
            self.counts[name] += 1
            if name in self.ghosts:
                return None
            self.stores.clear()
            result = original(function, *args, grid=grid, warmup=warmup, **kwargs)
            self.races[name] += self._collisions()
            return result

        kind.run = run

    def _watch_stores(self) -> None:
        """Remember which program stored where: the interpreter runs programs in order, so a race never shows in values."""
        from triton.runtime.interpreter import InterpreterBuilder

        original = InterpreterBuilder.create_masked_store

        def create_masked_store(builder: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
            written = (
                pointers.data[mask.data.astype(bool)]
                if mask.data.shape == pointers.data.shape
                else pointers.data.ravel()
            )
            x, y, z = builder.grid_idx
            self.stores.append(
                (written.ravel().copy(), (x * builder.grid_dim[1] + y) * builder.grid_dim[2] + z)
            )
            return original(builder, pointers, value, mask, *rest)

        InterpreterBuilder.create_masked_store = create_masked_store  # pyright: ignore[reportAttributeAccessIssue]

    def _collisions(self) -> int:
        """Addresses that two programs of one launch both stored to, without an atomic."""
        import numpy as np

        written = [(addresses, program) for addresses, program in self.stores if addresses.size]
        if not written:
            return 0
        addresses = np.concatenate([a for a, _ in written])
        programs = np.concatenate([np.full(a.size, p) for a, p in written])
        order = np.argsort(addresses, kind="stable")
        addresses, programs = addresses[order], programs[order]
        return int(((addresses[1:] == addresses[:-1]) & (programs[1:] != programs[:-1])).sum())


class Runner:
    """Builds a case's tensors, runs the candidate forward and backward, and writes what came out."""

    def __init__(self, job: dict[str, Any], files: Files) -> None:
        import torch

        self.torch, self.files, self.job = torch, files, job
        self.device = job["device"]
        if self.device == "cuda" and not torch.cuda.is_available():
            raise RuntimeError("this machine's GPU can't be used inside the sandbox")
        self.watcher = make_watcher(torch)
        self.launches = Launches()
        self.function = getattr(importlib.import_module(job["module"]), job["function_class"])
        self.kernels = frozenset(job["kernels"])

    def run(self, case: dict[str, Any]) -> dict[str, Any]:
        started = time.monotonic()
        options = case["options"]
        result: dict[str, Any] = {"id": case["id"], "runs": [], "error": None}
        try:
            for repeat in range(options["repeats"]):
                result["runs"].append(self.once(case, options, poison_sign=1 if repeat % 2 == 0 else -1))
        except Exception as error:  # noqa: BLE001 - the candidate failed; that is the result
            tail = traceback.format_exc()[-3000:]
            result["error"] = {"type": type(error).__name__, "message": str(error)[:1000], "traceback": tail}
        result["elapsed_s"] = time.monotonic() - started
        return result

    def once(self, case: dict[str, Any], options: dict[str, Any], *, poison_sign: int) -> dict[str, Any]:
        torch = self.torch
        storages: dict[str, Any] = {}
        tensors = {t["name"]: self.build(case, t, storages, options) for t in case["tensors"]}
        incoming = [self.build(case, g, storages, options) for g in case["gradients"]]
        before = {
            name: fingerprint(storage) for name, storage in storages.items() if not options["tile_rows"]
        }
        arguments = [
            tensors[name] if name in tensors else case["scalars"][name] for name in self.job["call_order"]
        ]
        self.launches.counts.clear()
        self.launches.races.clear()
        self.launches.ghosts = self.kernels if options["ghost"] else frozenset()
        watch = self.watcher(poison_sign)
        run: dict[str, Any] = {"outputs": [], "gradients": {}, "again": None}
        # Under torch.compile a dispatch mode would be traced; there the plain call is what is tested.
        with contextlib.nullcontext() if options["compiled"] else watch, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with self.contexts(options):
                call = self.function.apply
                if options["compiled"]:
                    call = torch.compile(self.apply, fullgraph=True)
                produced = call(*arguments)
            outputs = [
                o
                for o in (produced if isinstance(produced, tuple | list) else [produced])
                if isinstance(o, torch.Tensor)
            ]
            run["launches_forward"] = dict(self.launches.counts)
            self.launches.counts.clear()
            first = again = None
            wanted = sorted(name for name, tensor in tensors.items() if tensor.requires_grad)
            if incoming and wanted and not options["no_grad"]:
                pairs = [(o, g) for o, g in zip(outputs, incoming, strict=False) if o.requires_grad]
                leaves = [tensors[name] for name in wanted]

                def differentiate(retain: bool) -> Any:
                    gradients = [g if g.dtype == o.dtype else g.to(o.dtype) for o, g in pairs]
                    return torch.autograd.grad(
                        [o for o, _ in pairs], leaves, gradients, allow_unused=True, retain_graph=retain
                    )

                first = differentiate(options["backward_twice"])
                if options["backward_twice"]:
                    first = [None if g is None else g.clone() for g in first]
                    again = differentiate(False)
            if self.device == "cuda":
                torch.cuda.synchronize()
        run["launches_backward"] = dict(self.launches.counts)
        run["operations"] = watch.operations if options["record_aten"] else []
        run["races"] = {name: count for name, count in self.launches.races.items() if count}
        run["broken_guards"] = watch.broken_guards()
        run["allocated_bytes"] = sum(span * base.element_size() for base, span, _ in watch.guards)
        run["changed_inputs"] = [
            name for name, digest in before.items() if fingerprint(storages[name]) != digest
        ]
        pick = (
            (lambda t: t[list(options["sample_rows"])] if t is not None and t.dim() > 1 else t)
            if options["sample_rows"]
            else (lambda t: t)
        )
        run["outputs"] = [self.files.write(pick(o)) for o in outputs]
        if first is not None:
            run["gradients"] = {
                n: None if g is None else self.files.write(pick(g))
                for n, g in zip(wanted, first, strict=True)
            }
        if again is not None:
            run["again"] = {
                n: None if g is None else self.files.write(pick(g))
                for n, g in zip(wanted, again, strict=True)
            }
        return run

    def apply(self, *arguments: Any) -> Any:
        """`Function.apply` behind a plain function: what torch.compile is given in ordinary code."""
        return self.function.apply(*arguments)

    def build(
        self, case: dict[str, Any], placed: dict[str, Any], storages: dict[str, Any], options: dict[str, Any]
    ) -> Any:
        torch = self.torch
        dtype = getattr(torch, placed["dtype"])
        storage = self.files.read(
            f"{case['id'].replace('/', '_')}.{placed['name']}.bin", dtype, placed["storage"]
        ).to(self.device)
        tensor = torch.empty(0, dtype=dtype, device=self.device)
        tensor.set_(storage.untyped_storage(), placed["offset"], placed["shape"], placed["strides"])
        if options["tile_rows"] and len(placed["shape"]) > 1:
            rows = options["tile_rows"]
            copies = -(-rows // placed["shape"][0])
            tensor = tensor.repeat(copies, *[1] * (len(placed["shape"]) - 1))[:rows].contiguous()
        storages[placed["name"]] = storage
        return tensor.requires_grad_(True) if placed["requires_grad"] else tensor

    @contextlib.contextmanager
    def contexts(self, options: dict[str, Any]) -> Any:
        with contextlib.ExitStack() as stack:
            if options["no_grad"]:
                stack.enter_context(self.torch.no_grad())
            if options["autocast"]:
                stack.enter_context(
                    self.torch.autocast(self.device, dtype=getattr(self.torch, options["autocast"]))
                )
            yield


def main() -> None:
    job_file, cases_folder, output_folder, *interpreter = sys.argv[1:]
    cases, output = Path(cases_folder), Path(output_folder)
    import torch

    torch.set_num_threads(1)
    if interpreter:
        load_interpreter(interpreter[0])
    waited = time.monotonic()
    while not (cases / "cases.json").exists():
        if time.monotonic() - waited > WAIT_S:
            raise SystemExit("no cases came")
        time.sleep(0.02)
    job = json.loads(Path(job_file).read_text())
    chosen = [
        case
        for case in json.loads((cases / "cases.json").read_text())
        if not job["families"] or case["family"] in job["families"]
    ]
    report: dict[str, Any] = {"results": [], "error": None}
    try:
        runner = Runner(job, Files(cases, output, torch))
    except Exception as error:  # noqa: BLE001 - the candidate's module does not import; that is the result
        report["error"] = {
            "type": type(error).__name__,
            "message": str(error)[:1000],
            "traceback": traceback.format_exc()[-3000:],
        }
    else:
        for position, case in enumerate(chosen):
            report["results"].append(runner.run(case))
            (output / "partial.json").write_text(json.dumps(report))
            print(f"case {position + 1}/{len(chosen)} {case['id']}")
    (output / "results.json.part").write_text(json.dumps(report))
    os.replace(output / "results.json.part", output / "results.json")


if __name__ == "__main__":
    main()
