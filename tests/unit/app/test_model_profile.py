"""A model's profile as people see it: in the status comment and on the terminal."""

from __future__ import annotations

import io

from rich.console import Console

from agents.autopatch.model_profile import ModelProfile
from agents.dev.refused import Refused
from agents.profiles import Decision, Evidence, PlannedFile
from app import terminal
from app.comments.limits import MAX_BODY_CHARS
from app.comments.status import StageLine, status_markdown
from app.states import Stage, State
from tests.unit.app.test_comments import EVIL, _acts, view
from tests.unit.autopatch.act_profiles import norm, profile


def model_profile(**changes: object) -> ModelProfile:
    values: dict[str, object] = {
        "norms": [norm(patched=False, why="LayerNorm with one added to its weight")],
        "files": [PlannedFile(path="src/liger_kernel/transformers/model/tiny.py", action="create", why="w")],
        "risks": ["lce_forward follows transformers 5.24.0"],
        "questions": ["Which is it?"],
    }
    return profile(**(values | changes))


def shown(**changes: object) -> str:
    given = {
        "command": "/liger autopatch tiny",
        "verb": "autopatch",
        "state": State.awaiting_approval,
        "profile": model_profile(),
    }
    return status_markdown(view(**(given | changes)))


def test_the_comment_has_the_twelve_decisions_what_is_left_out_the_files_and_the_hash():
    text = shown()
    head, _, folded = text.partition("<details>")
    one = model_profile()
    assert f"#### Profile of `tiny` · hash `{one.sha256()[:12]}`" in head
    assert all(f"| `{decision.name}` | v |" in head for decision in one.decisions)
    assert len(one.decisions) == 12
    assert "| not patched | `TinyRMSNorm`: LayerNorm with one added to its weight |" in head
    assert "create `src/liger_kernel/transformers/model/tiny.py`" in head
    assert "1. Which is it?" in head
    assert "`/liger revise key=value`" in head
    assert "12 decisions and their evidence" in folded
    assert "def forward(" in folded


def test_its_stages_and_states_speak_of_a_model():
    text = shown(
        state=State.understanding, profile=None, stages=[StageLine(Stage.understand), StageLine(Stage.act)]
    )
    assert "`/liger autopatch tiny`: reading and probing the model" in text
    assert "Act: write the patch and its tests" in text
    assert "kernel" not in text


def test_a_refusal_speaks_of_a_model():
    refused = Refused(
        reason="transformers 5.24.0 has no model called `tinny`.", suggestions=("/liger autopatch tiny",)
    )
    failure = {"kind": "refused", "reason": refused.reason, "refused": refused.model_dump(mode="json")}
    text = shown(state=State.rejected, failure=failure, profile=None)
    assert "can't be patched" in text
    assert "**This model can't be patched**: transformers 5.24.0 has no model called `tinny`." in text
    assert "- next: `/liger autopatch tiny`" in text


def test_evil_text_in_a_model_never_acts():
    evil = Decision(
        name="rope", value=EVIL, why=EVIL, evidence=[Evidence(kind="read", text=EVIL, where=EVIL)]
    )
    one = model_profile(
        risks=[EVIL],
        questions=[EVIL],
        requested=[EVIL],
        causal_class=EVIL,
        norms=[norm(name=EVIL, patched=False, why=EVIL)],
        decisions=[evil],
        forward={"file": EVIL},
    )
    assert _acts(shown(profile=one)) == []


def test_a_long_forward_keeps_the_comment_within_githubs_limit():
    text = shown(profile=model_profile(source="x = 1\n" * 50_000))
    assert len(text) <= MAX_BODY_CHARS
    assert text.count("<details>") == text.count("</details>")


def test_the_terminal_shows_decisions_with_their_evidence_and_no_markup_of_others():
    out = io.StringIO()
    one = model_profile(risks=["[red]not markup[/]"])
    terminal.show_profile(Console(file=out, width=120), one)
    text = out.getvalue()
    assert "TinyForCausalLM of transformers 5.24.0" in text
    assert text.count("probe: 0 apart") == 12
    assert "TinyRMSNorm: LayerNorm with one added" in text
    assert "[red]not markup[/]" in text
    assert "to confirm 1: Which is it?" in text
