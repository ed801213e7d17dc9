"""A comment's text -> one command, or the mistake to answer."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.commands import Command, Mistake, parse
from app.verbs import USAGE, Verb


def test_a_command_at_the_start_of_a_line_is_read():
    assert parse("/liger dev relu2") == Command(Verb.dev, "relu2")


@pytest.mark.parametrize(
    ("text", "op"),
    [
        ("Hello,\n/liger dev relu2\nthank you", "relu2"),
        ("/LIGER Dev ReLU squared", "ReLU squared"),
        ("hi\r\n\r\n/liger dev relu2\r\n", "relu2"),
        ("/liger dev `x * sigmoid(1.702 * x)`", "x * sigmoid(1.702 * x)"),
        ('/liger dev "max(x, 0)**2"', "max(x, 0)**2"),
        (r"/liger dev x \* sigmoid(x)", "x * sigmoid(x)"),
        ("/liger dev something that doesn't close its quote", "something that doesn't close its quote"),
        ("   /liger dev relu2", "relu2"),
        ("<details>\n\n/liger dev relu2\n\n</details>", "relu2"),
    ],
)
def test_dev_takes_the_rest_of_the_line_as_the_op(text: str, op: str):
    assert parse(text) == Command(Verb.dev, op)


@pytest.mark.parametrize(
    "text",
    [
        "please /liger dev relu2",
        "> /liger dev relu2",
        "> quoted\n/liger dev relu2",  # Markdown takes the second line into the quote
        "- /liger dev relu2",
        "    /liger dev relu2",
        "```\n/liger dev relu2\n```",
        "~~~text\n/liger dev relu2\n~~~",
        "`\n/liger dev relu2\n`",
        "<!--\n/liger dev relu2\n-->",
        "some words <!--\n/liger dev relu2\n-->",
        "<details>\n/liger dev relu2\n</details>",
        "/ligerbot dev relu2",
        "# /liger dev relu2",
        "",
    ],
)
def test_text_that_only_looks_like_a_command_is_not_one(text: str):
    assert parse(text) is None


def test_two_commands_in_one_comment_are_refused():
    mistake = parse("/liger dev relu2\n\n/liger approve")
    assert isinstance(mistake, Mistake)
    assert "`/liger dev relu2` and `/liger approve`" in mistake.what


def test_a_quoted_command_beside_a_real_one_does_not_count():
    assert parse("> /liger dev silu\n\n/liger approve") == Command(Verb.approve)


def test_the_python_block_below_the_command_belongs_to_it():
    text = "```python\nbefore = 1\n```\n/liger dev my_op\n\nsome words\n\n```python\ndef f(x):\n    return x\n```\n"
    assert parse(text) == Command(Verb.dev, "my_op", block="def f(x):\n    return x\n")


def test_a_block_of_another_language_is_not_a_reference():
    assert parse("/liger dev relu2\n```json\n{}\n```") == Command(Verb.dev, "relu2")


def test_the_json_block_below_autopatch_is_the_config():
    text = '/liger autopatch\n```python\nx = 1\n```\n```json\n{"model_type": "arcee"}\n```'
    assert parse(text) == Command(Verb.autopatch, "", block='{"model_type": "arcee"}\n')


@pytest.mark.parametrize(
    "text",
    ["nemotron", "nemotron --add relu_squared", "`nemotron`", "nemotron --refresh", "--add=rope nemotron"],
)
def test_a_model_and_what_to_change_of_its_patch(text: str):
    assert parse(f"/liger autopatch {text}") == Command(Verb.autopatch, text.strip("`"))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "needs a model type"),
        ("nemotron llama", "needs one model, and got 2"),
        ("nemotron --refreshed", "has no flag `--refreshed`"),
        ("nemotron --add", "`--add` needs the name of a flag"),
    ],
)
def test_an_autopatch_that_can_not_be_followed(text: str, what: str):
    mistake = parse(f"/liger autopatch {text}")
    assert isinstance(mistake, Mistake)
    assert what in mistake.what
    assert mistake.next_command.startswith("/liger autopatch ")


def test_a_block_alone_is_an_op():
    command = parse("/liger dev\n```py\ndef f(x): return x\n```")
    assert isinstance(command, Command)
    assert command.block == "def f(x): return x\n"


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("/liger deev relu2", "dev"),
        ("/liger aprove", "approve"),
        ("/liger stauts", "status"),
        ("/liger xyzzy", None),
    ],
)
def test_an_unknown_verb_is_answered_with_the_nearest(text: str, suggestion: str | None):
    mistake = parse(text)
    assert isinstance(mistake, Mistake)
    assert mistake.suggestion == suggestion


def test_the_suggested_command_keeps_the_arguments():
    mistake = parse("/liger deev relu2")
    assert isinstance(mistake, Mistake)
    assert mistake.next_command == "/liger dev relu2"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("/liger", "`/liger` needs a verb"),
        ("/liger dev", "`dev` needs an op"),
        ("/liger dev --fast relu2", "`dev` has no flag `--fast`"),
        ("/liger status now", "`status` takes no arguments"),
        ("/liger revise", "`revise` needs at least one key=value"),
        ("/liger revise operation_name", "`revise` takes key=value"),
        ("/liger revise a='b", "a quote is opened and not closed"),
        ("/liger revise a=1 a=2", "`a` is given twice"),
        ("/liger approve of this", "`approve` takes nothing"),
        ("/liger perf", "`perf` needs one kernel, and got 0"),
        ("/liger perf rms_norm --goal cheap", "`--goal` needs speed or memory or balanced"),
        ("/liger perf rms_norm --goall speed", "`perf` has no flag `--goall`"),
        ("/liger help devv", "there is no verb `devv`"),
    ],
)
def test_a_malformed_command_is_a_mistake_that_says_what(text: str, what: str):
    mistake = parse(text)
    assert isinstance(mistake, Mistake)
    assert mistake.what.startswith(what)


def test_revise_takes_quoted_values():
    command = parse('/liger revise operation_name=squared_relu summary="y = x" tolerances.bf16.rtol=1e-2')
    assert isinstance(command, Command)
    assert command.changes == {
        "operation_name": "squared_relu",
        "summary": "y = x",
        "tolerances.bf16.rtol": "1e-2",
    }


def test_perf_flags_may_stand_anywhere_in_either_form():
    command = parse('/liger perf --GOAL=Memory rms_norm --max-variants 4 --target "n_cols 4096" --auto')
    assert command == Command(
        Verb.perf,
        "rms_norm",
        flags={"goal": "memory", "max-variants": "4", "target": "n_cols 4096", "auto": "true"},
    )


def test_approve_may_name_the_profile():
    assert parse("/liger approve `1A2B3C4D`") == Command(Verb.approve, "1a2b3c4d")


def test_help_takes_a_topic():
    assert parse("/liger help Dev") == Command(Verb.help, topic=Verb.dev)


def test_every_usage_example_is_a_command():
    assert {verb: type(parse(usage.example)) for verb, usage in USAGE.items()} == dict.fromkeys(Verb, Command)


@pytest.mark.parametrize(
    "filler",
    [
        "*a_" * 20_000,
        "[" * 60_000,
        ">" * 60_000,
        "`" * 30_000 + "a\n```",
        "<" * 60_000,
        "- " * 30_000,
        "![](" * 15_000,
        "a" * 1_000_000,
    ],
)
def test_hostile_text_is_parsed_quickly(filler: str):
    started = time.perf_counter()
    parse(filler + "\n\n/liger dev relu2")
    assert time.perf_counter() - started < 2.0  # it takes under 0.2 s; a quadratic parser would take minutes


def test_a_megabyte_with_a_command_in_it_is_a_mistake():
    mistake = parse("a" * 1_000_000 + "\n/liger dev relu2")
    assert isinstance(mistake, Mistake)
    assert "1,000,017 characters" in mistake.what


@given(st.text(max_size=200))
def test_any_words_after_dev_come_back_as_one_line_or_a_mistake(words: str):
    outcome = parse("/liger dev relu2 " + words.replace("\n", " ").replace("\r", " "))
    assert outcome is None or isinstance(outcome, Mistake) or "\n" not in outcome.text


def test_the_private_characters_used_for_parsing_are_not_a_way_in():
    assert parse("`\ue0000\ue001`\n\nwords\n\n> /liger dev relu2") is None
