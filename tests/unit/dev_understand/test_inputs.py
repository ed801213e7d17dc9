"""What a person typed is classified, or refused with what to type next."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from agents.dev.github_url import FetchedReference, parse_github_url
from agents.dev.inputs import OpInput, classify, from_fetched
from agents.dev.naming import class_stem, is_operation_name, operation_name
from agents.dev.refused import Mistake, Refused


def accepted(text: str, block: str | None = None, **options) -> OpInput:
    found = classify(text, block, **options)
    assert isinstance(found, OpInput), found
    return found


def refused(text: str, block: str | None = None, **options) -> Refused:
    found = classify(text, block, **options)
    assert isinstance(found, Refused), found
    return found


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("relu2", "catalog", "relu_squared"),
        ("ReLU squared", "catalog", "relu_squared"),
        ("`relu2`", "catalog", "relu_squared"),
        ("x * sigmoid(1.702 * x)", "expression", "quick_gelu"),
        ("max(x,0)**2", "expression", "relu_squared"),
        ("silu(a)*b", "expression", "swiglu"),
        ("x * cos(x)", "expression", "cos_expression"),
        ("swirl(x) = x * cos(x)", "expression", "swirl"),
        ("where(x >= 0, x * x, 0.0)", "expression", "relu_squared"),
        ("transformers.activations:ReLUSquaredActivation", "dotted_path", "relu_squared"),
        ("transformers.activations.ReLUSquaredActivation", "dotted_path", "relu_squared"),
        ("my_package.acts:SwishyThing", "dotted_path", "swishy_thing"),
        ("torch.nn.functional.silu", "catalog", "silu"),
        ("F.mish", "catalog", "mish"),
        ("torch.sin", "expression", "sin"),
    ],
)
def test_each_input_form_is_recognised(text, kind, name):
    found = accepted(text)

    assert (found.kind, found.op.name if found.op else None) == (kind, name)


def test_a_recognised_expression_keeps_the_persons_mathematics_under_the_known_name():
    found = accepted("silu(up) * gate")

    assert found.op is not None
    assert [tensor.name for tensor in found.op.tensors] == ["up", "gate"]
    assert found.op.source.splitlines()[-1] == "    return F.silu(up) * gate"
    assert (found.class_stem, found.known) == ("SwiGLU", "swiglu")


def test_a_block_is_the_reference_and_the_words_name_it():
    found = accepted("My Act", "def f(x):\n    return torch.tanh(x)\n")

    assert found.op is not None
    assert (found.kind, found.op.name, found.op.entry) == ("python_block", "my_act", "f")


def test_a_block_under_a_known_name_says_that_the_block_wins():
    assert (
        "the reference in the block was used"
        in accepted("relu2", "def f(x):\n    return torch.relu(x)\n").questions[-1]
    )


def test_a_link_is_parsed_for_the_configured_host_only():
    found = accepted("https://github.com/a/b/blob/main/src/x.py#L10-L40")
    local = accepted("http://127.0.0.1:8123/a/b/blob/v1/x.py", host="127.0.0.1:8123")

    assert found.url is not None
    assert found.url.model_dump(exclude={"url"}) == snapshot(
        {"owner": "a", "repo": "b", "ref": "main", "path": "src/x.py", "first_line": 10, "last_line": 40}
    )
    assert local.url is not None
    assert local.url.lines is None
    assert refused("https://evil.example/a/b/blob/main/x.py").reason == "Only links to github.com are read."


def test_a_fetched_link_is_cut_and_pinned():
    url = parse_github_url("https://github.com/a/b/blob/main/x.py#L1-L2")
    found = from_fetched(
        FetchedReference(url=url, text="def my_act(x):\n    return x * 2\n", commit="0123456789abcdef")
    )

    assert isinstance(found, OpInput)
    assert found.op is not None
    assert found.op.name == "my_act"
    assert found.source == "https://github.com/a/b/blob/main/x.py#L1-L2 at 0123456789ab"


@pytest.mark.parametrize(
    ("url", "path", "lines"),
    [
        ("https://github.com/a/b/blob/main/x.py#L3", "x.py", (3, 3)),
        ("https://github.com/a/b/blob/main/x.py#L9C1-L3C5", "x.py", (3, 9)),
        ("<https://github.com/a/b/blame/v1.0/d/x.py>", "d/x.py", None),
        ("https://raw.githubusercontent.com/a/b/refs/heads/main/d/x.py", "d/x.py", None),
        ("https://github.com/a/b/blob/main/a%20b.py", "a b.py", None),
    ],
)
def test_every_spelling_of_a_link_is_understood(url, path, lines):
    found = parse_github_url(url)

    assert (found.path, found.lines, found.owner, found.repo) == (path, lines, "a", "b")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://github.com/a/b", "The link does not point to a file."),
        ("https://github.com/a/b/blob/main/x.txt", "The link does not point to a Python file."),
        (
            "https://github.com/a/b/blob/main/../x.py",
            "The link has an owner, repository or path that GitHub does not allow.",
        ),
        (
            "https://github.com/a/b/blob/main/x.py#Lx",
            "The line numbers `#Lx` are not understood; use `#L10-L40`.",
        ),
        ("https://github.com@evil.example/a/b/blob/main/x.py", "Only links to github.com are read."),
        ("https://[::1/a/b/blob/main/x.py", "The address is not a valid URL."),
    ],
)
def test_a_link_that_can_not_be_read_is_refused(url, reason):
    with pytest.raises(Mistake) as caught:
        parse_github_url(url)

    assert caught.value.refused.reason == reason


def test_a_misspelt_name_is_refused_with_the_nearest_ops():
    found = refused("relu_sqaurd")

    assert found.reason == "`relu_sqaurd` is not an op that I know."
    assert found.suggestions[0] == "/liger dev relu_squared"


def test_no_words_and_no_block_are_refused_with_examples():
    assert refused("  ").suggestions == ("/liger dev relu_squared", "/liger dev x * sigmoid(1.702 * x)")


def test_a_function_compiled_into_pytorch_is_refused_plainly():
    assert (
        refused("torch.fft.rfft").reason
        == "`torch.fft.rfft` is compiled into PyTorch: there is no source to read."
    )


def test_words_are_free_text_with_the_ops_they_mention():
    found = accepted("please fuse the squared relu with a dropout of ten percent")

    assert (found.kind, found.op, found.nearest[0]) == ("free_text", None, "relu_squared")


@pytest.mark.parametrize(
    "text", ["x" * 1_000_000, "word " * 200_000, "(" * 100_000, "https://github.com/" + "a" * 1_000_000]
)
def test_a_huge_text_is_answered_quickly(text):
    classify(text)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("ReLUSquared", "relu_squared"),
        ("LlamaRMSNorm", "llama_rms_norm"),
        ("My Act-2", "my_act_2"),
        ("QuickGELU", "quick_gelu"),
        ("class", None),
        ("x", None),
        ("utils", None),
        ("../../etc", "etc"),
        ("é", None),
    ],
)
def test_words_make_an_operation_name_or_none(words, name):
    assert operation_name(words) == name
    assert name is None or is_operation_name(name)


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("relu_squared", "ReLUSquared"),
        ("rms_norm", "RMSNorm"),
        ("swiglu", "SwiGLU"),
        ("kl_div", "KLDiv"),
        ("my_act_2", "MyAct2"),
    ],
)
def test_class_names_are_spelt_as_the_field_spells_them(name, stem):
    assert class_stem(name) == stem
