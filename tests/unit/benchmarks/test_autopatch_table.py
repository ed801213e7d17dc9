"""The tables that the autopatch benchmarks leave in the documents."""

from __future__ import annotations

from typing import Any

from benchmarks.autopatch_expected import EXPECTED, decisions_right
from benchmarks.autopatch_new_ground import passes
from benchmarks.autopatch_table import between, new_ground

PASSED = {"check": "model/imports", "outcome": "passed", "summary": "all import", "seconds": 0.1}
FAILED = {"check": "model/revert", "outcome": "failed", "summary": "still called", "seconds": 0.1}
DECISIONS = {
    "norm_type": "rms_norm",
    "casting_mode": "llama",
    "offset": "0",
    "in_place": "True",
    "mlp": "a | b",
    "rope": "none",
}


def patched(*checks: dict[str, Any]) -> dict[str, Any]:
    return {"architecture": "dense", "decisions": DECISIONS, "questions": [], "checks": list(checks)}


def test_a_patch_passes_when_every_check_of_it_did() -> None:
    assert passes(patched(PASSED))
    assert not passes(patched(PASSED, FAILED))
    assert not passes(patched())
    assert not passes({"refused": "an encoder"})


def test_a_table_is_replaced_where_it_was_and_nothing_else_is() -> None:
    page = "# Autopatch\n\nwords\n\n<!-- results -->\n\nmore words\n"
    first = between(page, "replays", "| old |")
    second = between(between(first, "new ground", "| ground |"), "replays", "| new |")
    assert "| old |" not in second
    assert second.startswith("# Autopatch\n\nwords\n\n<!-- results -->\n\nmore words\n")
    assert second.count("<!-- replays -->\n| new |\n<!-- /replays -->") == 1
    assert "<!-- new ground -->\n| ground |\n<!-- /new ground -->" in second


def test_what_passes_fails_and_is_refused_is_counted() -> None:
    stored = {
        "environment": {"transformers": "5.24.0", "torch": "2", "triton": "3"},
        "scenarios": ["revert"],
        "models": {
            "good": patched(PASSED),
            "bad": patched(PASSED, FAILED),
            "bert": {"refused": "an encoder", "code": "encoder_only"},
        },
    }
    text = new_ground(stored)
    assert "1 with a patch whose tests pass, 1 with a patch of which a test fails, 1 refused" in text
    assert "| good | llama/0 in place | a \\| b | none | dense |  | 1/1 |" in text
    assert "1/2 revert: still called" in text
    assert "| bert | an encoder |" in text


def test_a_decision_that_differs_from_the_known_answer_is_named() -> None:
    answers = [{"name": name, "value": value} for name, value in EXPECTED["llama"].items()]
    assert decisions_right("llama", answers) == (12, [])
    answers[0]["value"] = "other"
    right, wrong = decisions_right("llama", answers)
    assert right == 11
    assert wrong == [f"{answers[0]['name']}: other instead of {EXPECTED['llama'][answers[0]['name']]}"]
