"""One decision from two sources: what was read, and what the probe found; a disagreement becomes a question. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from agents.profiles import Decision, Evidence


def number(value: float | None) -> str:
    """A distance for people: "3.1e-07"; "infinite" when it could not be compared."""
    return "infinite" if value is None else f"{value:.2g}"


def read(text: str, where: str | None) -> Evidence:
    return Evidence(kind="read", text=text, where=where)


def probed(text: str) -> Evidence:
    return Evidence(kind="probe", text=text)


@dataclass
class Answers:
    """Collects the decisions of one model, with the questions and risks that came up."""

    decisions: dict[str, Decision] = field(default_factory=dict)
    questions: list[str] = field(default_factory=list)
    risks: list[str] = field(default_factory=list)

    def decide(self, name: str, value: str, why: str, *evidence: Evidence) -> None:
        self.decisions[name] = Decision(name=name, value=value, why=why, evidence=list(evidence))

    def ask(self, question: str) -> None:
        if question not in self.questions:
            self.questions.append(question)

    def warn(self, risk: str) -> None:
        if risk not in self.risks:
            self.risks.append(risk)
