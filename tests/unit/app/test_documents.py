"""The documents say what the code does: settings, commands, pages that the README names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.settings import documented_names
from app.states import State
from app.verbs import USAGE, Verb

ROOT = Path(__file__).resolve().parents[3]


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def test_every_setting_is_explained():
    page = text("docs/settings.md")
    assert [name for name in documented_names() if f"`{name}`" not in page] == []


@pytest.mark.parametrize("verb", list(Verb))
def test_every_command_is_explained(verb: Verb):
    page = text("docs/commands.md").replace("\\|", "|")
    assert f"`{USAGE[verb].form}`" in page


def test_every_state_is_drawn():
    page = text("docs/states.md")
    assert [state.value for state in State if state.value not in page] == []


@pytest.mark.parametrize(
    "page", ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
)
def test_links_between_documents_lead_somewhere(page: str):
    folder = (ROOT / page).parent
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text(page))
    assert [link for link in links if not (folder / link).exists()] == []
