"""`/liger revise` on a model's profile: what a person may decide, and what is for the probe to say."""

from __future__ import annotations

import pytest

from agents.autopatch.agent import AutopatchAgent
from agents.autopatch.model_profile import ModelProfile
from agents.autopatch.revise import revise
from agents.autopatch.unpatched import unpatched
from agents.command_agent import read_profile
from agents.dev.refused import Refused
from tests.unit.autopatch.act_profiles import profile


def revised(**changes: str) -> ModelProfile:
    outcome = revise(profile(), changes)
    assert isinstance(outcome, ModelProfile)
    return outcome


@pytest.mark.parametrize(
    ("key", "name"),
    [("rope", "apply_rotary_pos_emb"), ("mlp", "TinyMLP"), ("norm_type", "TinyRMSNorm")],
)
def test_a_part_can_be_left_unpatched(key: str, name: str) -> None:
    assert unpatched(profile()) == []
    outcome = revised(**{key: "unpatched"})
    assert unpatched(outcome) == [(name, "a person decided so")]
    decision = next(one for one in outcome.decisions if one.name == key)
    assert decision.value == "unpatched"
    assert "the rules had said v: w" in decision.why
    assert [evidence.kind for evidence in decision.evidence] == ["person", "probe"]
    assert outcome.sha256() != profile().sha256()


def test_the_backward_can_be_made_not_to_write_over_its_gradient() -> None:
    assert profile().norms[0].in_place
    assert not revised(in_place="false").norms[0].in_place


def test_all_changes_are_made_or_none() -> None:
    outcome = revised(rope="unpatched", mlp="unpatched")
    assert len(unpatched(outcome)) == 2
    assert isinstance(revise(profile(), {"rope": "unpatched", "nope": "1"}), Refused)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rope": "patched"}, "`rope=patched` can't be followed"),
        ({"in_place": "true"}, "is for the probe to say"),
        ({"output_class": "Mine"}, "`output_class` is what transformers does"),
        ({"ropes": "unpatched"}, "There is no decision `ropes`"),
    ],
)
def test_what_can_not_be_revised_is_answered_with_what_can(changes: dict[str, str], reason: str) -> None:
    refused = revise(profile(), changes)
    assert isinstance(refused, Refused)
    assert reason in refused.reason
    assert "`rope=unpatched`" in (refused.needed or "")


def test_a_change_to_what_is_so_already_is_told() -> None:
    refused = revise(revised(rope="unpatched"), {"rope": "unpatched"})
    assert isinstance(refused, Refused)
    assert refused.reason == "Nothing changes: `rope` is unpatched already."


def test_a_stored_profile_comes_back_as_what_it_was() -> None:
    assert read_profile(profile().model_dump(mode="json")) == profile()


@pytest.mark.parametrize(
    ("text", "block", "key"),
    [
        ("Ministral", None, "ministral"),
        ("nemotron --add relu_squared", None, "nemotron relu_squared"),
        ("nemotron --refresh", None, "nemotron refresh"),
    ],
)
def test_two_requests_of_the_same_change_have_one_key(text: str, block: str | None, key: str) -> None:
    wanted = AutopatchAgent().wanted(text, block, "github.com")
    assert not isinstance(wanted, Refused)
    assert wanted.key == key


def test_a_config_that_is_not_json_is_refused_before_anything_runs() -> None:
    refused = AutopatchAgent().wanted("", "{", "github.com")
    assert isinstance(refused, Refused)
    assert "not JSON" in refused.reason
