"""Runs pytest in the sandbox, in this process, with the repaired interpreter when there is no GPU.

Usage (through boot.py): run_tests.py INTERPRETER|- PYTEST_ARGUMENT…. Loaded by path; imports none of ours. Also checks
imports: run_tests.py INTERPRETER|- --imports RESULT.json NAME….
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import traceback
from pathlib import Path


def load_interpreter(path: str) -> None:
    spec = importlib.util.spec_from_file_location("repaired_interpreter", path)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    sys.modules["repaired_interpreter"] = module
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    module.repair()


def check_imports(result: Path, names: list[str]) -> None:
    """Import "module" or "module:symbol" names one by one; write name -> None or what went wrong."""
    found: dict[str, str | None] = {}
    for name in names:
        module_name, _, symbol = name.partition(":")
        try:
            module = importlib.import_module(module_name)
            found[name] = None if not symbol or hasattr(module, symbol) else f"{module_name} has no {symbol}"
        except BaseException as error:  # noqa: BLE001 - a module that raises SystemExit on import is a finding too
            found[name] = "".join(traceback.format_exception_only(error)).strip()
    result.write_text(json.dumps(found))


def main() -> int:
    interpreter, *arguments = sys.argv[1:]
    if interpreter != "-":
        load_interpreter(interpreter)
    if "--imports" in arguments:
        position = arguments.index("--imports")
        result, *names = arguments[position + 1 :]
        names, arguments = (
            ([*names[: names.index("--")], *[]], names[names.index("--") + 1 :])
            if "--" in names
            else (names, [])
        )
        check_imports(Path(result), names)
        if not arguments:
            return 0
    import pytest

    return pytest.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
