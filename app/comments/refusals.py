"""Why a command came to no profile, for people."""

from __future__ import annotations

from agents.dev.refused import Refused
from agents.markdown import code, plain
from app.comments.wording import wording


def refusal(refused: Refused, verb: str = "dev") -> str:
    """Why an op or a model can't become a profile, and what to do instead."""
    lines = [f"**{wording(verb).cannot}**: {clause(refused.reason)}."]
    if refused.node:
        lines.append(f"- operation: {code(refused.node)}")
    if refused.where:
        lines.append(f"- where: {code(refused.where)}")
    if refused.needed:
        lines.append(f"- what is needed: {clause(refused.needed)}")
    if refused.model_could_help:
        lines.append(
            "- a language model could try it: the operator of this bot can configure one with `LIGER_BOT_MODEL`"
        )
    if refused.suggestions:
        lines.append("- next: " + " or ".join(code(_as_command(one)) for one in refused.suggestions[:3]))
    return lines[0] + ("\n\n" + "\n".join(lines[1:]) if lines[1:] else "")


def clause(text: str) -> str:
    """Someone's sentence as a part of ours: nothing in it acts, and what it puts between backticks is shown as code."""
    parts = text.strip().rstrip(".").split("`")
    if len(parts) % 2 == 0:  # a backtick without its partner
        return plain(text)
    return "".join(code(part) if number % 2 else _spaced(part) for number, part in enumerate(parts))


def _spaced(text: str) -> str:
    before, after = text[:1].isspace() * " ", text[-1:].isspace() * " "
    return f"{before}{plain(text)}{after}" if text.strip() else text[:1]


def _as_command(suggestion: str) -> str:
    return suggestion if suggestion.startswith("/liger") else f"/liger dev {suggestion}"
