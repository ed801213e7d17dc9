"""Every family that decides has cases for every kind of op: a case that the reference refuses says nothing about a candidate."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from agents.catalog.lookup import catalog
from runners.checks.families import FAMILIES
from runners.gauntlet.builder import Builder, Refused
from runners.gauntlet.truth import Reference

# Labels behind a linear layer, a table, halves, halves of halves, groups, probabilities, rows only, two dimensions only.
OPS = [
    "fused_linear_cross_entropy", "fused_linear_z_loss", "embedding", "rope", "rope_partial", "group_norm", "kl_div", "dpo_loss", "cross_entropy",
    "swiglu_packed", "top_k_router",
]  # fmt: skip


@pytest.mark.parametrize("name", OPS)
def test_the_reference_accepts_the_cases_of_every_essential_family(name: str, tmp_path: Path) -> None:
    # F.cross_entropy takes (rows, columns) only: the tracer names the rows.
    op = catalog().ops[name].op
    if "F.cross_entropy" in op.source:
        named = (tuple("n_rows" if axis == "*" else axis for axis in t.shape) for t in op.tensors)
        tensors = tuple(
            t.model_copy(update={"shape": shape}) for t, shape in zip(op.tensors, named, strict=True)
        )
        op = op.model_copy(update={"tensors": tensors})
    reference = Reference(op, tmp_path)
    builder = Builder(reference, seed=3, gpu=False)
    for family in (family for family in FAMILIES if family.essential and family.cases):
        accepted = 0
        for make in family.cases(builder):
            try:
                case = make()
                reference.results(case, torch.float64)
                accepted += 1
            except (Refused, RuntimeError, IndexError):
                continue
        assert accepted, family.name


def test_results_of_probabilities_are_numbers(tmp_path: Path) -> None:
    reference = Reference(catalog().ops["kl_div"].op, tmp_path)
    case = Builder(reference, seed=3, gpu=False).case("dtypes", "float32")
    assert reference.results(case, torch.float64).outputs[0].isfinite().all()


def test_labels_index_the_vocabulary_and_some_are_ignored(tmp_path: Path) -> None:
    reference = Reference(catalog().ops["fused_linear_cross_entropy"].op, tmp_path)
    case = Builder(reference, seed=3, gpu=False).case("dtypes", "x", rows=(300,), cols=50)
    labels = case.values["target"]
    assert case.values["weight"].shape[0] == 50
    assert int(labels.max()) == 49
    assert 0 < int((labels == -100).sum()) < 100


def test_what_an_axis_must_be_a_multiple_of_is_taken_from_the_profile(tmp_path: Path) -> None:
    reference = Reference(
        catalog().ops["rope"].op, tmp_path
    )  # accepts an odd head_dim, where its kernel does not
    odd = Builder(reference, seed=3, gpu=False).case("dtypes", "x", cols=33)
    even = Builder(reference, seed=3, gpu=False, multiples={"head_dim": 2}).case("dtypes", "x", cols=33)
    assert (odd.values["x"].shape[-1], even.values["x"].shape[-1]) == (33, 34)
