"""The reports of several architectures as one check run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agents.dev.check_result import MAX_MARKDOWN, MAX_TITLE, CheckResult, Conclusion, check_name
from agents.markdown import code, cut, fence, plain, table
from app.actions.faults import WORDS, Fault, conclusion_of
from app.actions.workflow import workflow_text
from runners.protocol import Gate

# The smallest is the worst.
_RANKS: dict[Conclusion, int] = {
    "failure": 0,
    "timed_out": 1,
    "action_required": 2,
    "neutral": 3,
    "success": 4,
}
_ICONS = {"success": "✅", "failure": "❌", "neutral": "⚪", "timed_out": "⏱️", "action_required": "⚠️"}


@dataclass(frozen=True)
class Part:
    """What came from one architecture: a judged report, a fault, or nothing yet."""

    architecture: str
    labels: Sequence[str]
    run_url: str = ""
    result: CheckResult | None = None
    fault: Fault | None = None
    detail: str = ""
    waiting: str = ""  # "queued", "running"

    def conclusion(self, gate: Gate) -> Conclusion:
        if self.result is not None:
            return self.result.conclusion
        return conclusion_of(self.fault or Fault.lost, gate)

    @property
    def title(self) -> str:
        if self.result is not None:
            return self.result.title
        return self.waiting or WORDS[self.fault or Fault.lost].title


def join(gate: Gate, parts: Sequence[Part]) -> CheckResult:
    """One check run from every architecture's part; the worst of them decides."""
    conclusions: list[Conclusion] = [part.conclusion(gate) for part in parts]
    worst = min(conclusions, key=_RANKS.__getitem__)
    first = next(part for part in parts if part.conclusion(gate) == worst)
    title = first.title if len(parts) == 1 else f"{first.architecture}: {first.title}"
    details = [part for part in parts if part.result is not None or part.fault is not None]
    share = (MAX_MARKDOWN - 4_000) // max(1, len(details))
    return CheckResult(
        name=check_name(gate),
        conclusion=worst,
        title=title[:MAX_TITLE],
        summary=cut(
            "\n\n".join([matrix(gate, parts), *(_section(one, share) for one in details)]), MAX_MARKDOWN
        ),
        text=cut("\n\n".join(filter(None, map(_text, details))), MAX_MARKDOWN),
        annotations=[
            one.model_copy(update={"title": f"{part.architecture}: {one.title}"[:MAX_TITLE]})
            for part in parts
            for one in (part.result.annotations if part.result else [])
        ],
    )


def matrix(gate: Gate, parts: Sequence[Part]) -> str:
    """One row an architecture: where it runs and how it went."""
    rows = [
        [
            "⏳" if part.waiting else _ICONS[part.conclusion(gate)],
            code(part.architecture),
            ", ".join(code(label) for label in part.labels),
            plain(part.title),
            f"[run]({part.run_url})" if part.run_url else "",
        ]
        for part in parts
    ]
    return table(["", "architecture", "runner", "what was found", ""], rows)


def _section(part: Part, share: int) -> str:
    if part.result is not None:
        return f"### {plain(part.architecture)}\n\n{cut(part.result.summary, share)}"
    words = WORDS[part.fault or Fault.lost]
    said = f"\n\n{plain(part.detail)}" if part.detail else ""
    return f"### {plain(part.architecture)}: {words.title}\n\n{words.to_do}{said}"


def _text(part: Part) -> str:
    if part.fault is Fault.no_workflow:
        return f"`.github/workflows/liger-bot-verify.yml`:\n\n{fence(workflow_text())}"
    if part.result is None or not part.result.text:
        return ""
    return f"## {plain(part.architecture)}\n\n{part.result.text}"
