"""Tolerances of the generated tests, each with the reason that is written into the profile. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernels.derivation import Derivation
from kernels.traced import TracedOp, references

# Half-precision: one rounding is half a unit in the last place; the reference rounds after every operation of the chain.
UNIT = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
FLOOR = {"bfloat16": 1e-2, "float16": 2e-3}
CEILING = {"bfloat16": 5e-2, "float16": 1e-2}
_NO_ROUNDING = (
    "input",
    "tangent",
    "getitem",
    "aten.view",
    "aten.expand",
    "aten.unsqueeze",
    "aten.squeeze",
    "aten.detach",
    "aten.permute",
)


@dataclass(frozen=True)
class Tolerance:
    """An absolute and a relative tolerance, and why these."""

    atol: float
    rtol: float
    why: str
    depth: int = 0


def tolerances(traced: TracedOp, derivation: Derivation) -> dict[str, Tolerance]:
    """dtype -> tolerance for comparing the kernel with the reference in that dtype."""
    depth = longest_chain(traced)
    sums_over_rows = any(operand.role == "column" for operand in derivation.inputs)
    found = {"float32": replace(_float32(derivation.tier, sums_over_rows), depth=depth)}
    for dtype, unit in UNIT.items():
        bound = (depth + 1) * unit / 2
        rtol = round(min(max(bound, FLOOR[dtype]), CEILING[dtype]), 4)
        factor = 2 if derivation.tier > 1 or sums_over_rows else 1
        found[dtype] = Tolerance(
            atol=round(factor * rtol, 4),
            rtol=rtol,
            depth=depth,
            why=f"the kernel computes in float32 and rounds once; the reference rounds after each of up to {depth} chained operations: "
            f"({depth} + 1) x 2^{-9 if dtype == 'bfloat16' else -12} = {bound:.1e}, kept within [{FLOOR[dtype]:g}, {CEILING[dtype]:g}]"
            + ("; atol is twice that because sums of rounded terms cancel" if factor == 2 else ""),
        )
    return found


def _float32(tier: int, sums_over_rows: bool) -> Tolerance:
    if sums_over_rows:
        return Tolerance(
            1e-4,
            1e-4,
            "column gradients are sums over all rows, added in another order than the reference: about sqrt(n_rows) x 2^-24 of the largest term",
        )
    if tier > 1:
        return Tolerance(
            2e-5,
            1e-4,
            "row sums are added in another order than the reference: about sqrt(n_cols) x 2^-24 of the largest term",
        )
    return Tolerance(
        1e-5,
        1e-5,
        "both compute in float32; exp, log and tanh differ from the reference's by a few units of 2^-23 = 1.2e-7",
    )


def longest_chain(traced: TracedOp) -> int:
    """Operations on the longest path through the joint graph, each of which rounds in the dtype under test."""
    depth: list[int] = []
    for node in traced.nodes:
        before = max((depth[ref] for ref in references(node)), default=0)
        depth.append(before + (not node.op.startswith(_NO_ROUNDING)))
    return max(depth, default=0)
