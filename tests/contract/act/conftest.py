"""Real checkouts, a real runner, and profiles made from real traces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agents.catalog.lookup import catalog
from agents.conventions import Conventions, detect
from agents.dev.compose import compose
from agents.dev.findings import Origin
from agents.profiles import KernelProfile
from app.checkout import CheckoutTree
from kernels.derive import derive
from kernels.op_spec import OpSpec
from kernels.trace import trace
from kernels.traced import TracedOp
from tests.liger_checkout import liger_checkout

VERSIONS = ("0.5.10", "0.7.0", "0.8.0", "0.8.5")


@pytest.fixture(scope="session")
def checkouts(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A release's checkout, unpacked once; not to be changed."""
    unpacked: dict[str, Path] = {}

    def checkout(version: str) -> Path:
        if version not in unpacked:
            unpacked[version] = liger_checkout(tmp_path_factory.mktemp(f"liger-{version}"), version)
        return unpacked[version]

    return checkout


@pytest.fixture(scope="session")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., KernelProfile]:
    """The profile of a catalog op in a checkout; each op is traced once."""
    folder = tmp_path_factory.mktemp("references")
    traces: dict[str, TracedOp] = {}

    def traced(op: OpSpec) -> TracedOp:
        if op.name not in traces:
            file = folder / f"{op.name}.py"
            file.write_text(op.source)
            names: dict[str, object] = {}
            exec(compile(op.source, str(file), "exec"), names)  # noqa: S102 - a reference of our own catalog
            traces[op.name] = trace(op, names[op.entry])  # type: ignore[arg-type]
        return traces[op.name]

    def profile(name: str, conventions: Conventions) -> KernelProfile:
        known = catalog().ops[name]
        found = traced(known.op)
        return compose(found, derive(found), conventions, Origin(source=known.source, stem=known.class_name))

    return profile


def read(root: Path) -> tuple[CheckoutTree, Conventions]:
    """A checkout as the agents see it."""
    tree = CheckoutTree(root)
    return tree, detect(tree)
