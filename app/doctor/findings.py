"""What doctor finds, and how it is shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum

from pydantic import BaseModel
from rich.console import Console
from rich.markup import escape


class Outcome(StrEnum):
    """How bad a finding is."""

    fine = "fine"
    remark = "remark"  # works, and a person should know
    failed = "failed"  # something that the bot is asked for can't work, or isn't safe


class Finding(BaseModel):
    """One thing looked at. `fix`: what to do about it, in a sentence."""

    about: str  # this machine, the App, or owner/name of a repository
    name: str
    outcome: Outcome
    text: str
    fix: str = ""


_MARKS = {Outcome.fine: "[green]✓[/]", Outcome.remark: "[yellow]![/]", Outcome.failed: "[red]✗[/]"}


def fine(about: str, name: str, text: str) -> Finding:
    return Finding(about=about, name=name, outcome=Outcome.fine, text=text)


def remark(about: str, name: str, text: str, fix: str = "") -> Finding:
    return Finding(about=about, name=name, outcome=Outcome.remark, text=text, fix=fix)


def failed(about: str, name: str, text: str, fix: str) -> Finding:
    return Finding(about=about, name=name, outcome=Outcome.failed, text=text, fix=fix)


def show(findings: Sequence[Finding], console: Console) -> None:
    """Print one line a finding, grouped by what it is about."""
    about = ""
    for one in findings:
        if one.about != about:
            about = one.about
            console.print(f"[bold]{escape(about)}[/]", highlight=False, soft_wrap=True)
        fix = f" → {one.fix}" if one.fix else ""
        console.print(
            f"  {_MARKS[one.outcome]} {escape(one.name)}: {escape(one.text + fix)}",
            highlight=False,
            soft_wrap=True,
        )


def findings_json(findings: Sequence[Finding]) -> str:
    """The findings as a JSON object: `ok` and the list."""
    ok = all(one.outcome is not Outcome.failed for one in findings)
    return json.dumps({"ok": ok, "findings": [one.model_dump(mode="json") for one in findings]}, indent=2)
