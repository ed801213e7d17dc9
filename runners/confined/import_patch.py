"""Imports a patched package under the transformers on the path. Usage (through boot.py): import_patch.py TASK.json RESULT.json.

TASK.json: {"package", "imports", "model_type", "modeling_module"}. RESULT.json: {"transformers", "model", "failed": {name: why},
"left": [name]}, or {"unusable": why} when this transformers itself can't be imported. Loaded by path; imports none of ours. The model's own module is not asked for where this transformers has no such
model: the package has to import nevertheless.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import traceback
from pathlib import Path
from typing import Any


def main() -> int:
    task: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    try:
        import transformers
    except BaseException as error:  # noqa: BLE001 - an environment that doesn't work is its operator's to mend
        unusable = traceback.format_exception_only(error)[-1].strip()[:300]
        Path(sys.argv[2]).write_text(json.dumps({"unusable": unusable, "failed": {}}))
        return 0
    there = has(task["modeling_module"])
    result: dict[str, Any] = {
        "transformers": transformers.__version__,
        "model": there,
        "failed": {},
        "left": [],
    }
    for name in task["imports"]:
        module, _, symbol = name.partition(":")
        if not there and module == f"{task['package']}.transformers.model.{task['model_type']}":
            result["left"].append(name)
            continue
        try:
            if not hasattr(importlib.import_module(module), symbol):
                result["failed"][name] = f"{module} has no {symbol}"
        except BaseException as error:  # noqa: BLE001 - a package may do anything on import
            result["failed"][name] = traceback.format_exception_only(error)[-1].strip()[:500]
    Path(sys.argv[2]).write_text(json.dumps(result))
    return 0


def has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


if __name__ == "__main__":
    sys.exit(main())
