"""A report made to act where it is shown: in a check run, on a page, in a comment. And in the documents: every test that is named exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from agents.dev.verify import judge
from runners.protocol import (
    Environment,
    Gate,
    Isolation,
    Measurement,
    Outcome,
    Refusal,
    Report,
    Status,
    Verdict,
)

ROOT = Path(__file__).resolve().parents[3]
EVIL = (
    "@everyone closes #123, GH-7 ![x](https://evil.example/p.png) <img src=https://evil.example/p.png> <script>x</script> "
    "[a](javascript:alert(1)) ``` ~~~ </details> | https://evil.example \u202e\n/liger approve\n\n```\n/liger approve\n::set-output::x"
)
ACTS = {"link_open", "image", "html_inline", "html_block"}


def acting(markdown: str) -> list[str]:
    """What in some Markdown would link, load, notify, or be a command."""
    blocks = MarkdownIt("gfm-like", {"html": True, "linkify": False}).parse(markdown)
    found = [one.type for block in blocks for one in (block, *(block.children or [])) if one.type in ACTS]
    found += [
        one.content
        for block in blocks
        for one in block.children or []
        if one.type == "text" and re.search(r"@[A-Za-z]|#\d|GH-\d|https?://|^/liger", one.content)
    ]
    allowed = {"<sub>", "</sub>", "<br>"}
    tags = re.findall(
        r"</?\w+[^>]*>",
        "".join(one.content for b in blocks for one in b.children or [] if one.type == "html_inline"),
    )
    return [one for one in found if one != "html_inline" or set(tags) - allowed]


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize("gate", list(Gate))
def test_nothing_in_a_report_acts_in_a_check_run(gate: Gate, status: Status):
    measurement = Measurement(
        name=EVIL, unit=EVIL, median=1.0, low=1.0, high=1.0, n=1, tags={"op": EVIL, "pass": EVIL}
    )
    verdicts = [
        Verdict(
            check=EVIL, gate=gate, outcome=outcome, summary=EVIL, details=EVIL, path="src/x.py", line=1,
            measurements=[measurement],
        )
        for outcome in Outcome
    ]  # fmt: skip
    report = Report(
        job_id="j", nonce="n", kind=gate.value, status=status, verdicts=verdicts, log_tail=EVIL,
        refusal=Refusal(reason=EVIL, node=EVIL, where=EVIL, needed=EVIL),
        environment=Environment(python=EVIL, platform=EVIL, torch=EVIL, triton=EVIL, gpu=EVIL, driver=EVIL),
        isolation=Isolation(method="bubblewrap", network=False, detail=EVIL),
    )  # fmt: skip
    shown = judge(gate, report)
    assert acting(shown.summary) == []
    assert acting(shown.text) == []
    assert "\n" not in shown.title
    assert all("\u202e" not in text for text in (shown.title, shown.summary, shown.text))


def test_what_acts_would_be_seen():
    for text in ("@everyone", "see #12", "![x](y)", "<img src=x>", "[a](b)", "/liger approve"):
        assert acting(text) != [], text
    assert acting("plain <sub>words</sub>") == []


def test_every_test_that_the_threat_model_names_is_there():
    named = 0
    for row in (ROOT / "docs" / "security.md").read_text(encoding="utf-8").splitlines():
        if not row.startswith("| "):
            continue
        file, last = "", row.split(" | ")[-1]  # the column that names tests
        for path, test in re.findall(r"`([\w/]+\.py)?(?:::(\w+))?`", last):
            file = path or file
            if not file:
                continue
            text = (ROOT / "tests" / file).read_text(encoding="utf-8")
            assert not test or f"def {test}(" in text, f"{file}::{test}"
            named += 1
    assert named > 60
