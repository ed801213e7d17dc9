"""What the bot posts. Wording is reviewed here, as prose."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from inline_snapshot import snapshot
from markdown_it import MarkdownIt

from agents.dev.refused import Refused
from app.commands import Mistake
from app.comments import replies
from app.comments.limits import MAX_BODY_CHARS
from app.comments.pull import pull_footer, pull_text
from app.comments.status import GateLine, StageLine, StatusView, body_sha256, marker, status_markdown
from app.states import Stage, State
from app.verbs import Verb
from tests.unit.app.profiles import kernel_profile

EVIL = "@someone fixes #12 <img src=x> `code` ```\n</details> [link](https://evil.example) | cell https://github.com/a/b/issues/3"


def view(**changes: object) -> StatusView:
    values: dict[str, object] = {
        "request_id": "abc2345",
        "command": "/liger dev relu2",
        "requester": "maintainer",
        "state": State.understanding,
        "page_url": "http://bot/requests/abc2345",
        "stages": [
            StageLine(Stage.understand, running=True, note="tracing · 2 of 5"),
            StageLine(Stage.act),
            StageLine(Stage.verify),
        ],
    }
    return StatusView(**(values | changes))  # type: ignore[arg-type]


def test_work_in_progress():
    assert status_markdown(view()) == snapshot("""\
<!-- liger-bot:request=abc2345 -->

### `/liger dev relu2`: reading the reference

- [ ] Understand: read the reference, decide, write the profile ⏳<br>tracing · 2 of 5
- [ ] Act: write kernels, tests and benchmark on a branch, open a draft pull request
- [ ] Verify: style, correctness, compile, benchmark

<sub>request `abc2345` by maintainer · [details](http://bot/requests/abc2345)</sub>\
""")


def test_a_profile_waits():
    text = status_markdown(
        view(
            state=State.awaiting_approval, profile=kernel_profile(), expires=datetime(2026, 3, 15, tzinfo=UTC)
        )
    )
    assert text.partition("<details>")[0] == snapshot("""\
<!-- liger-bot:request=abc2345 -->

### `/liger dev relu2`: waiting for your decision

- [ ] Understand: read the reference, decide, write the profile ⏳<br>tracing · 2 of 5
- [ ] Act: write kernels, tests and benchmark on a branch, open a draft pull request
- [ ] Verify: style, correctness, compile, benchmark

**Is this right?** Waiting for someone with write access to this repository: react 👍 to this comment or comment `/liger approve`. `/liger revise key=value` changes a decision; 👎 or `/liger reject` turns it down. This expires on 15 March 2026.

#### Profile of `relu_squared` · hash `76afde6413ca`

|  | decision |
| --- | --- |
| computes | `y = max(x, 0)²` |
| gradients | `dx = 2 * max(x, 0) * dy` |
| inputs | `x: (*, n_cols) same as input` |
| names | `LigerReLUSquaredFunction`, `LigerReLUSquared`, `liger_relu_squared` |
| kind | tier 1, element-wise; nearest kernel: swiglu |
| kept for the backward | `x` |
| in fp32 | nothing needs it |
| layout | one program per row; block size: calculate\\_settings(n\\_cols) |
| predicted at 8192 x 4096, bfloat16 | at most 2.00x forward, 3.33x backward over eager; floor 0.031 ms and 0.047 ms; 20.0% less peak memory (bytes moved, not measured) |
| tolerances | bfloat16: atol 0.01, rtol 0.01 |
| files | create `src/liger_kernel/ops/relu_squared.py` |
| risks | Nothing was timed yet. |
| reference from | arXiv:2109.08668 |

""")


def test_a_second_person_is_asked_for_where_that_is_the_rule():
    text = status_markdown(view(state=State.awaiting_approval, requester_may_approve=False))
    assert "someone with write access to this repository, other than maintainer," in text


def test_ready_for_review():
    gates = [
        GateLine("style", "success", "4 passed"),
        GateLine("benchmark", "neutral", "no GPU on this runner"),
    ]
    text = status_markdown(view(state=State.in_review, pull_number=5, gates=gates, stages=[]))
    assert text == snapshot("""\
<!-- liger-bot:request=abc2345 -->

### `/liger dev relu2`: ready for review

Pull request #5 is a draft, for a person to review and merge. Everything that blocks has passed.

| Checks on pull request #5 | result |
| --- | --- |
| ✅ style | 4 passed |
| ⚪ benchmark | no GPU on this runner |

<sub>request `abc2345` by maintainer · [details](http://bot/requests/abc2345)</sub>\
""")


def test_a_gate_that_failed_is_named():
    gates = [GateLine("style", "success", "fine"), GateLine("correctness", "failure", "2 failed")]
    text = status_markdown(view(state=State.in_review, pull_number=5, gates=gates))
    assert "**Not everything passed: correctness.** `/liger retry` verifies again." in text


def test_a_refusal():
    refused = Refused(
        reason="`torch.sort` is outside the rules.",
        node="aten.sort.default",
        where="reference line 4: y = x.sort()",
        needed="A rule for sorting.",
        suggestions=("relu_squared", "/liger help dev"),
        model_could_help=True,
    )
    failure = {"kind": "refused", "reason": refused.reason, "refused": refused.model_dump(mode="json")}
    assert status_markdown(view(state=State.rejected, failure=failure, stages=[])) == snapshot("""\
<!-- liger-bot:request=abc2345 -->

### `/liger dev relu2`: can't be derived

**This op can't be derived**: `torch.sort` is outside the rules.

- operation: `aten.sort.default`
- where: `reference line 4: y = x.sort()`
- what is needed: A rule for sorting
- a language model could try it: the operator of this bot can configure one with `LIGER_BOT_MODEL`
- next: `/liger dev relu_squared` or `/liger help dev`

<sub>request `abc2345` by maintainer · [details](http://bot/requests/abc2345)</sub>\
""")


def test_our_fault_is_shown_as_ours():
    text = status_markdown(
        view(state=State.failed, failure={"kind": "fault", "reason": "the disk is full"}, stages=[])
    )
    assert "**This is our fault, not yours**: the disk is full. It is logged under request `abc2345`." in text


@pytest.mark.parametrize("state", [State.rejected, State.cancelled, State.expired])
def test_an_ended_request_says_how_to_go_on(state: State):
    text = status_markdown(view(state=state, ended_by="maintainer", stages=[]))
    assert f"{state} by maintainer." in text
    assert "`/liger retry` takes it up again" in text


def test_every_state_has_its_words():
    for state in State:
        assert marker("abc2345") in status_markdown(view(state=state, pull_number=5))


def test_a_comment_keeps_within_githubs_limit_and_its_end():
    profile = kernel_profile(risks=["a risk " * 40] * 300)
    text = status_markdown(view(state=State.awaiting_approval, profile=profile))
    assert len(text) <= MAX_BODY_CHARS
    assert text.count("<details>") == text.count("</details>")
    assert text.endswith("[details](http://bot/requests/abc2345)</sub>")


def test_the_profile_is_in_the_comment_as_yaml_without_what_the_machine_made():
    text = status_markdown(view(state=State.awaiting_approval, profile=kernel_profile()))
    assert "traced: 'omitted: machine-made" in text
    assert f"sha256: {kernel_profile().sha256()}" in text


def _acts(markdown: str) -> list[str]:
    """What of a rendered text could act: links, images, raw HTML that is not ours, and texts with @ or # before a word."""
    acting: list[str] = []
    for token in MarkdownIt("commonmark").enable("table").parse(markdown):
        for child in token.children or []:
            if child.type in {"link_open", "image"} and not str(child.attrGet("href") or "").startswith(
                "http://bot/"
            ):
                acting.append(child.type)
            if child.type == "html_inline" and child.content not in {"<br>", "<sub>", "</sub>"}:
                acting.append(child.content)
            if child.type == "text" and (
                "@someone" in child.content or "#12" in child.content or "https://" in child.content
            ):
                acting.append(child.content)
    return acting


@pytest.mark.parametrize(
    "text",
    [
        status_markdown(
            view(command=EVIL, requester=EVIL, stages=[StageLine(Stage.verify, running=True, note=EVIL)])
        ),
        status_markdown(view(state=State.failed, failure={"kind": "fault", "reason": EVIL})),
        status_markdown(view(state=State.failed, failure={"kind": "mistake", "reason": EVIL})),
        status_markdown(view(state=State.in_review, pull_number=5, gates=[GateLine(EVIL, "failure", EVIL)])),
        status_markdown(view(state=State.cancelled, ended_by=EVIL)),
        status_markdown(
            view(
                state=State.failed,
                failure={
                    "kind": "refused",
                    "reason": "r",
                    "refused": {
                        "reason": EVIL,
                        "node": EVIL,
                        "where": EVIL,
                        "needed": EVIL,
                        "suggestions": [EVIL],
                    },
                },
            )
        ),
        replies.mistake("asker", Mistake("there is no verb `x`", EVIL, EVIL)),
        replies.live_already("asker", "abc2345", EVIL, "http://bot/requests/abc2345"),
        replies.nothing_to("asker", Verb.approve, [(EVIL, "failed")]),
        replies.status_reply("asker", [("abc2345", EVIL, "failed", "http://bot/requests/abc2345")]),
        replies.revise_mistake("asker", Refused(reason=EVIL, needed=EVIL, suggestions=(EVIL,))),
        replies.other_profile("asker", EVIL, "0" * 64),
        pull_footer(EVIL, "abc2345", "0" * 64, EVIL, "http://bot/requests/abc2345"),
    ],
)
def test_what_others_wrote_never_acts(text: str):
    assert _acts(text) == []


def test_evil_text_in_a_profile_never_acts():
    profile = kernel_profile(
        risks=[EVIL], questions=[EVIL], source=EVIL, tier_description=EVIL, forward_computation=EVIL
    )
    assert _acts(status_markdown(view(state=State.awaiting_approval, profile=profile))) == []


def test_the_check_for_acting_text_sees_what_acts():
    assert _acts("@someone") == ["@someone"]
    assert _acts("[x](https://evil.example)") == ["link_open"]


def test_replies():
    assert {
        "mistake": replies.mistake("asker", Mistake("there is no verb `devv`", "/liger dev relu2", "dev")),
        "not allowed": replies.not_allowed("asker", Verb.dev),
        "not available": replies.not_available("asker", Verb.perf),
        "live": replies.live_already("asker", "abc2345", "/liger dev relu2", "http://bot/requests/abc2345"),
        "nothing": replies.nothing_to("asker", Verb.approve, [("/liger dev relu2", "in_review")]),
        "nothing at all": replies.nothing_to("asker", Verb.approve, []),
        "other profile": replies.other_profile("asker", "1a2b3c", "9f" * 32),
        "overtaken": replies.overtaken("asker", "in_review"),
        "revise": replies.revise_mistake(
            "asker", Refused(reason="`rtol` can't be revised.", suggestions=("tolerances.bf16.rtol",))
        ),
        "status": replies.status_reply(
            "asker", [("abc2345", "/liger dev relu2", "awaiting_approval", "http://bot/requests/abc2345")]
        ),
        "help": replies.help_text("asker", Verb.revise),
    } == snapshot(
        {
            "mistake": "@asker I didn't follow that: there is no verb `devv`. Did you mean `dev`? Try `/liger dev relu2`.",
            "not allowed": "@asker `/liger dev` needs write access to this repository, which you don't have; someone with write access to this repository can comment it here. I answer this once a day.",
            "not available": "@asker `/liger perf` is not available yet. `/liger dev <op>` is; see `/liger help`.",
            "live": "@asker that is being worked on already: `/liger dev relu2`, request `abc2345`, http://bot/requests/abc2345. `/liger cancel` there stops it.",
            "nothing": "@asker there is nothing to approve here: `/liger dev relu2` is in review. `/liger status` shows more.",
            "nothing at all": "@asker there is nothing to approve here. `/liger status` shows more.",
            "other profile": "@asker the profile that waits here has the hash `9f9f9f9f9f9f`, not `1a2b3c`; look at it again, then `/liger approve 9f9f9f9f9f9f`.",
            "overtaken": "@asker that came too late: the request is in review by now. `/liger status` shows more.",
            "revise": "@asker the profile stays as it was: `rtol` can't be revised. Did you mean `tolerances.bf16.rtol`?",
            "status": """\
@asker requests here:

| request | command | state |
| --- | --- | --- |
| [abc2345](http://bot/requests/abc2345) | `/liger dev relu2` | awaiting approval |\
""",
            "help": """\
@asker one command a comment, at the start of a line:

| command | what it does | who |
| --- | --- | --- |
| `/liger revise key=value…` | change decisions of the profile; it is checked again and shown again | write access |

Example: `/liger revise operation_name=squared_relu`\
""",
        }
    )


def test_a_hash_of_a_comment_survives_what_github_does_to_it():
    assert body_sha256("a\nb\n") == body_sha256("a\r\nb")
    assert body_sha256("a\nb") != body_sha256("a\nc")


def test_a_long_pull_request_text_keeps_its_footer():
    assert pull_text("x\n" * 60_000, "\nfooter").endswith("\nfooter")
    assert len(pull_text("x\n" * 60_000, "\nfooter")) <= MAX_BODY_CHARS
