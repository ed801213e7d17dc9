"""Inspects models of the installed transformers inside the sandbox, each in a fork of one process that has imported what they share.

Usage (through boot.py): inspect_model.py INTERPRETER|- PROBE_FOLDER REQUESTS.json RESULTS_FOLDER. Loaded by path; imports none of
ours but the probe package, under a name of its own.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

SECONDS_PER_MODEL = 120


def load_package(name: str, folder: str) -> None:
    """Make the package in `folder` importable as `name`, without its parent on the path."""
    spec = importlib.util.spec_from_file_location(
        name, f"{folder}/__init__.py", submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def load_interpreter(path: str) -> None:
    spec = importlib.util.spec_from_file_location("repaired_interpreter", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["repaired_interpreter"] = module
    spec.loader.exec_module(module)
    module.repair()


def main() -> None:
    interpreter, folder, requests_file, results_folder = sys.argv[1:]
    requests: list[dict[str, Any]] = json.loads(Path(requests_file).read_text())
    warnings.simplefilter("ignore")
    if interpreter != "-":
        load_interpreter(interpreter)
    load_package("model_probe", folder)
    results = Path(results_folder)
    started = time.perf_counter()
    try:
        shared_imports()
    except BaseException as error:  # noqa: BLE001 - the target's package may do anything on import
        words = traceback.format_exception_only(error)[-1].strip()
        refusal = {"code": "checkout_import_failed", "detail": words[:500], "known": []}
        for position in range(len(requests)):
            write(results / f"{position}.json", {"refusal": refusal, "seconds": 0.0})
        return
    print(f"imported in {time.perf_counter() - started:.1f} s", flush=True)
    for position, request in enumerate(requests):
        print(f"model {position} {request.get('model') or 'config.json'}", flush=True)
        inspect_one(request, results / f"{position}.json")


def shared_imports() -> None:
    """What every model needs, before the forks: torch, transformers, the target's package."""
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    importlib.import_module("liger_kernel.transformers")
    from transformers import modeling_utils  # noqa: F401 - slow, and every model needs it


def inspect_one(request: dict[str, Any], result: Path) -> None:
    """Fork, inspect, and leave a result whatever happens to the fork."""
    started = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        signal.alarm(SECONDS_PER_MODEL)
        status = 1
        try:
            from model_probe.inspection import inspect_model  # type: ignore[import-not-found]

            found = inspect_model(request.get("model"), request.get("config"))
            write(result, found | {"seconds": round(time.perf_counter() - started, 2)})
            status = 0
        except BaseException:  # noqa: BLE001 - said in the log and in the result
            traceback.print_exc()
            sys.stderr.flush()
            detail = traceback.format_exc().strip().splitlines()
            write(result, {"refusal": {"code": "probe_failed", "detail": " | ".join(detail[-3:])[:600], "known": []},
                           "seconds": round(time.perf_counter() - started, 2)})  # fmt: skip
        os._exit(status)
    _, ended = os.waitpid(pid, 0)
    if os.WIFSIGNALED(ended):
        code = "timeout" if os.WTERMSIG(ended) == signal.SIGALRM else "crashed"
        seconds = round(time.perf_counter() - started, 2)
        refusal = {"code": code, "detail": f"signal {os.WTERMSIG(ended)} after {seconds:.0f} s", "known": []}
        write(result, {"refusal": refusal, "seconds": seconds})


def write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value))


if __name__ == "__main__":
    main()
