"""What the skill and the guide tell people is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agents.catalog.known_op import parse_known_op
from agents.catalog.lookup import catalog
from agents.dev.inputs import OpInput, classify
from agents.dev.roofline import BANDWIDTH_TBPS
from agents.dev.tolerances import CEILING, FLOOR

ROOT = Path(__file__).resolve().parents[3]
SKILL = (ROOT / "agents/skills/dev/SKILL.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs/add-an-op.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ("known name", "catalog"),
        ("dotted path", "dotted_path"),
        ("expression", "expression"),
        ("link", "url"),
    ],
)
def test_the_examples_of_each_input_form_are_classified_so(form, kind):
    row = next(line for line in SKILL.splitlines() if line.strip().startswith(f"| {form} |"))
    examples = re.findall(r"`([^`]+)`", row.split("|")[2])

    kinds = [
        found.kind if isinstance(found := classify(example), OpInput) else found.reason
        for example in examples
    ]

    assert examples
    assert set(kinds) == {kind}


def test_the_numbers_of_the_skill_are_the_codes():
    assert f"{BANDWIDTH_TBPS} TB/s" in SKILL
    assert f"[{FLOOR['bfloat16']:g}, {CEILING['bfloat16']:g}]" in SKILL.replace("1e-2", "0.01").replace(
        "5e-2", "0.05"
    )


def test_the_guides_example_is_the_file_in_the_catalog():
    example = re.search(r"````markdown\n(.*?)````", GUIDE, re.DOTALL)
    assert example is not None

    parsed = parse_known_op("relu_squared", "activation", example[1])

    assert parsed.op.source == catalog().ops["relu_squared"].op.source
    assert parsed.class_name == "ReLUSquared"
