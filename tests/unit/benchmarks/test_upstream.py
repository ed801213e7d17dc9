"""Upstream's tests as judge: which variant an adapter chooses, what counts as ours, and the table."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.upstream.adapters import ADAPTERS, NotOurs
from benchmarks.upstream.notes import DESELECTED, NOTES, REMARKS
from benchmarks.upstream.overlay import printed, replaced
from benchmarks.upstream.references import variants
from benchmarks.upstream.table import failing, kind_of, section, summary
from kernels.call_signature import call_order
from kernels.derive import derive
from kernels.trace import trace

REFERENCES = variants()
X, LABELS = torch.zeros(4, 8), torch.tensor([0, 1, 2, -100])
ROW, SCALAR = torch.zeros(8), torch.zeros(1)


class Chosen:
    """Stands where the overlay's `derived` is: remembers what it was asked for, and gives zeros."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __call__(self, variant: str, *arguments: Any) -> Any:
        self.calls.append((variant, arguments))
        two = variant.startswith(("cross_entropy_general", "fused_add"))
        return (torch.zeros(()), torch.zeros(())) if two else torch.zeros_like(arguments[0])


CALLS: list[tuple[str, tuple[Any, ...], str]] = [
    ("swiglu", (X, X), "swiglu"),
    ("swiglu", (X, X, 0.7, 1.3), "swiglu_scaled"),
    ("dyt", (X, SCALAR, ROW, ROW), "dyt"),
    ("dyt", (X, SCALAR, ROW, None), "dyt_no_beta"),
    ("rms_norm", (X, ROW, 1e-6), "rms_norm"),
    ("rms_norm", (X, ROW, 1e-6, 1.0, "gemma", False), "rms_norm_gemma"),
    ("rms_norm", (X, ROW, 1e-6, 0.0, "none"), "rms_norm_none"),
    ("rms_norm", (X, None, 1e-6, 1.0, "gemma"), "rms_norm_no_weight"),
    ("rms_norm", (X, None, 1e-6, 0.0, "none"), "rms_norm_none_no_weight"),
    ("fused_add_rms_norm", (X, X, ROW, 1e-6, 1.0, "gemma"), "fused_add_rms_norm_gemma"),
    ("group_norm", (torch.zeros(2, 4, 8), ROW[:4], ROW[:4], 4, 2, 1e-6), "group_norm"),
    ("group_norm", (torch.zeros(1, 32, 4096), ROW, ROW, 32, 1, 1e-6), "group_norm_wide"),
    ("poly_norm", (X, torch.zeros(3), SCALAR, 1e-6), "poly_norm"),
    ("layer_norm", (X, ROW, ROW, 1e-6), "layer_norm"),
    ("cross_entropy", (X, LABELS, None), "cross_entropy"),
    ("cross_entropy", (X, LABELS, None, -100, 0.0, 0.0, "sum"), "cross_entropy_general_sum"),
    ("cross_entropy", (X, LABELS, None, -100, 1e-4, 0.1, "mean", 30.0), "cross_entropy_general_softcap_mean"),
    ("cross_entropy", (X, LABELS, ROW, -100, 0.0, 0.0, "none"), "cross_entropy_general_weighted_none"),
    ("kl_div", (X, X), "kl_div"),
    ("kl_div", (X.bfloat16(), X), "kl_div_batchmean"),
    ("kl_div", (X, X, "none", True), "kl_div_none_log_target"),
    ("jsd", (X, X), "jsd"),
    ("jsd", (X, X, None, 0.0), "jsd_forward"),
    ("jsd", (X, X, LABELS, 1.0), "jsd_reverse_labelled"),
    ("jsd", (X, X, LABELS, 0.1, 2), "jsd_between_labelled"),
    ("tvd", (X, X), "tvd"),
    ("tvd", (X, X, LABELS, "mean"), "tvd_mean_labelled"),
    ("rope", (torch.zeros(2, 3, 4, 8), torch.zeros(2, 1, 4, 8), torch.zeros(1, 4, 8), torch.zeros(1, 4, 8)), "rope"),
    ("rope", (torch.zeros(2, 3, 4, 8), torch.zeros(2, 1, 4, 8), torch.zeros(2, 4, 8), torch.zeros(2, 4, 8)), "rope_batched"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "arguments", "variant"), CALLS)
def test_an_adapter_chooses_the_variant_that_computes_what_was_asked_for(
    op: str, arguments: tuple[Any, ...], variant: str
) -> None:
    chosen = Chosen()
    assert not isinstance(ADAPTERS[op].adapt(chosen, *arguments), NotOurs)
    assert {name for name, _ in chosen.calls} == {variant}
    assert variant in REFERENCES


@pytest.mark.parametrize(
    ("op", "arguments", "reason"),
    [
        ("rms_norm", (X, ROW, 1e-6, 1.0, "llama"), "casting mode llama with offset 1.0"),
        ("cross_entropy", (X, LABELS, None, -100, 0.0, 0.0, "mean", None, False, True), "token accuracy"),
        ("cross_entropy", (X, torch.full((4,), 8), None), "out of bounds"),
        ("cross_entropy", (X, torch.full((4,), -100), None), "no target"),
    ],
)
def test_what_no_variant_covers_is_handed_back(op: str, arguments: tuple[Any, ...], reason: str) -> None:
    chosen = Chosen()
    answer = ADAPTERS[op].adapt(chosen, *arguments)
    assert isinstance(answer, NotOurs)
    assert reason in answer.reason
    assert chosen.calls == []


# One call of each way to pass scalars and labels: a wrong order would run, and be wrong.
@pytest.mark.parametrize(
    ("op", "arguments"),
    [
        ("swiglu", (X, X, 0.7, 1.3)),
        ("group_norm", (torch.zeros(2, 4, 8), ROW[:4], ROW[:4], 4, 2, 1e-6)),
        ("cross_entropy", (X, LABELS.clamp(min=0), ROW, 7, 0.25, 0.5, "mean", 30.0)),
        ("jsd", (X, X, LABELS, 0.1, 7)),
        ("tvd", (X, X, LABELS, "mean", 7)),
    ],
)
def test_arguments_are_in_the_order_of_the_printed_function(op: str, arguments: tuple[Any, ...]) -> None:
    chosen = Chosen()
    ADAPTERS[op].adapt(chosen, *arguments)
    variant, given = chosen.calls[0]
    namespace: dict[str, Any] = {}
    reference = REFERENCES[variant].op
    exec(compile(reference.source, f"{variant}.py", "exec"), namespace)  # noqa: S102 - our own text
    order = call_order(derive(trace(reference, namespace[reference.entry])))
    values = {
        "gate_multiplier": 0.7, "down_multiplier": 1.3, "num_groups": 2, "eps": 1e-6, "ignore_index": 7,
        "lse_square_scale": 0.25, "label_smoothing": 0.5, "softcap": 30.0, "beta": 0.1,
    }  # fmt: skip
    tensors = [spec.name for spec in reference.tensors]
    assert order[: len(tensors)] == tensors
    assert list(given[len(tensors) :]) == [values[name] for name in order[len(tensors) :]]


def test_the_function_is_replaced_at_the_end_of_its_module() -> None:
    adapter = ADAPTERS["softmax"]
    text = replaced("class LigerSoftmaxFunction:\n    pass\n", adapter)
    assert text is not None
    assert text.endswith('\n\nLigerSoftmaxFunction = put_behind(LigerSoftmaxFunction, "softmax")\n')
    assert replaced("class LigerSoftMax:\n    pass\n", adapter) is None


def test_a_wide_variant_is_read_in_blocks() -> None:
    narrow, wide = printed(REFERENCES["group_norm"]), printed(REFERENCES["group_norm_wide"])
    assert isinstance(narrow, str)
    assert isinstance(wide, str)
    assert "for start in range(0, n_cols, BLOCK_SIZE)" in wide
    assert wide.count("for start in range") > narrow.count("for start in range")


def record(name: str, outcome: str = "passed", **changes: Any) -> dict[str, Any]:
    counts = {"calls": {"softmax": 1}, "launches": {"_softmax_forward_kernel": 1}, "not_ours": {}}
    return {"test": f"t.py::{name}", "outcome": outcome, "seconds": 1.0, "reason": "", **counts, **changes}


KINDS = [
    (record("a"), "passed"),
    (record("a", "failed"), "failed"),
    # it fell before it launched: our failure, not theirs
    (record("a", "failed", launches={}), "failed"),
    (record("a", launches={}), "not_ours"),
    (record("a", calls={}, launches={}), "not_ours"),
    (record("a", not_ours={"DTensor": 1}), "not_ours"),
    (record("a", "failed", reason="TooSlowError: too slow here: ran into 30 s"), "too_slow"),
    (record("a", "xfailed"), "skipped"),
]


@pytest.mark.parametrize(("one", "kind"), KINDS)
def test_a_test_counts_for_us_only_when_the_derived_kernel_answered_it(
    one: dict[str, Any], kind: str
) -> None:
    assert kind_of(one) == kind


RECORDS = [
    {"collected": ["t.py::a", "t.py::b[1]", "t.py::c", "t.py::d"]},
    record("a"),
    record("b[1]", "failed", reason="AssertionError: | no"),
    record("c", not_ours={"DTensor": 1}),
]


def test_summary_counts_every_collected_test_once() -> None:
    assert failing(RECORDS) == ["t.py::b[1]"]
    deselected = {"e": "needs 8 GPUs", "a": "ran all the same"}
    counts = summary(RECORDS, [record("b[1]", "passed")], {"b": "our fault"}, deselected)
    expected = {
        "tests": 4,
        "passed": 1,
        "failed": 1,
        "not_ours": 1,
        "not_reached": 1,
        "skipped": 0,
        "too_slow": 0,
    }
    assert {key: counts[key] for key in expected} == expected
    assert counts["failures"] == [
        {"test": "b[1]", "reason": "AssertionError: | no", "target_itself": "passed", "note": "our fault"}
    ]
    assert counts["deselected"] == {"e": "needs 8 GPUs"}
    assert counts["not_ours_because"] == {"DTensor": 1}
    assert counts["launches"] == {"_softmax_forward_kernel": 3}


def test_the_table_says_who_failed_and_why() -> None:
    environment = {"device": "H", "torch": "2", "triton": "3", "transformers": "5", "interpreter": False}
    counts = summary(RECORDS, [record("b[1]", "passed")], {}, {"e": "needs 8 GPUs"})
    result = {
        "environment": environment,
        "liger_commit": "0" * 40,
        "command": "run",
        "ops": {"softmax": counts},
    }
    text = "\n".join(section({"h200": result}))
    assert "| `softmax` | 1 | 4 | 1 | 1 | 0 | 1 | 0 | 1 | 3.0 |" in text
    assert "failed `b[1]` (Liger's own kernel: passed): AssertionError: | no" in text
    assert "deselected `e`: needs 8 GPUs" in text
    assert "not ours (1): DTensor" in text
    assert section({}) == []


def test_notes_are_about_ops_that_have_an_adapter() -> None:
    assert set(NOTES) | set(DESELECTED) | set(REMARKS) <= set(ADAPTERS)
