"""Traces a reference inside the sandbox. Usage (through boot.py): trace_reference.py OP.json RESULT.json OWN_ROOT [DOTTED_PATH].

This child runs nothing of a target repository, so it may import ours; the package named by a dotted path is imported
before ours become visible.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any


def main() -> None:
    op_file, result_file, own_root, *dotted = sys.argv[1:]
    if dotted:
        import importlib

        # transformers, for one, asks whether a package called `kernels` exists.
        sys.path.remove(own_root)
        try:
            importlib.import_module(dotted[0].partition(":")[0])
        except Exception as error:  # noqa: BLE001 - a person's path; import_dotted below says it in words
            print(f"importing {dotted[0]}: {type(error).__name__}: {error}")
        sys.path.insert(0, own_root)
    from kernels.derivation import Unsupported

    try:
        result = _traced(Path(op_file), dotted[0] if dotted else None)
    except Unsupported as unsupported:
        refusal = {
            "reason": unsupported.reason,
            "node": unsupported.node,
            "where": unsupported.where,
            "needed": unsupported.needed,
        }
        result = {"refusal": refusal}
    except MemoryError:
        result = {"refusal": {"reason": "tracing the reference needs more memory than a runner gives it"}}
    Path(result_file).write_text(json.dumps(result))


def _traced(op_file: Path, dotted: str | None) -> dict[str, Any]:
    from kernels.derivation import Unsupported
    from kernels.op_spec import OpSpec
    from kernels.trace import trace
    from runners.reference import extract_source, import_dotted, load_reference
    from runners.static_scan import scan

    op = OpSpec.model_validate_json(op_file.read_text())
    original = None
    if dotted is not None:
        found = import_dotted(dotted)
        op = op.model_copy(
            update={
                "source": extract_source(found),
                "entry": found.__name__,
                "kind": "module" if isinstance(found, type) else "function",
            }
        )
        findings = scan(op.source)
        if findings:
            raise Unsupported(
                f"{dotted} can't be used as a reference: {findings[0].message}",
                where=f"line {findings[0].line}: {findings[0].code}",
            )
        original = trace(op, found)
    with tempfile.TemporaryDirectory() as folder:
        traced = trace(op, load_reference(op, Path(folder)))
    if original is not None and _graph(original) != _graph(traced):
        raise Unsupported(
            f"the source of {dotted}, taken by itself, computes something else than the installed object",
            needed="a reference whose behaviour does not depend on its decorators or its module's state",
        )
    return {"traced": traced.model_dump(mode="json")}


COMPUTATION = ("op", "args", "kwargs", "dtype", "shape", "backward", "user_cast", "name")


def _graph(traced: Any) -> Any:
    """What a traced op computes, without where it was written: equal for equal computations."""
    data = traced.model_dump(mode="json", include={"nodes", "outputs", "gradients", "axes", "fixed", "tied"})
    return {**data, "nodes": [{key: node[key] for key in COMPUTATION} for node in data["nodes"]]}


if __name__ == "__main__":
    main()
