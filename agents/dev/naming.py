"""Names: from a person's words to an operation name, and from that to class names in the target's spelling. Pure."""

from __future__ import annotations

import keyword
import re

OPERATION_NAME = re.compile(r"[a-z][a-z0-9_]{1,47}")
CLASS_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]{0,47}")

# How the field spells a word inside a class name; other words are capitalised.
_SPELLING = {
    **{
        word.lower(): word
        for word in ("ReLU", "SiLU", "GELU", "GLU", "SwiGLU", "GEGLU", "ReGLU", "ELU", "SELU", "CELU", "DyT")
    },
    **{
        word.lower(): word
        for word in (
            "RMS",
            "KL",
            "JSD",
            "TVD",
            "BCE",
            "MSE",
            "DPO",
            "QK",
            "AdaLN",
            "RoPE",
            "GLU",
            "LSE",
            "SoLU",
        )
    },
    **{word.lower(): word for word in ("LiGLU", "SeGLU", "PReLU", "RReLU", "CReLU", "ISRU", "ISRLU", "NLL")},
}
_FILENAMES_TAKEN = {"utils", "init", "functional", "test", "ops", "backends", "experimental"}


def operation_name(words: str) -> str | None:
    """The snake_case name those words make ("My Act-2" -> "my_act_2"), or None when they make none."""
    for spelled in sorted(_SPELLING.values(), key=len, reverse=True):
        words = re.sub(
            rf"{spelled}(?![a-z])", spelled.capitalize(), words
        )  # ReLUSquared is relu_squared, not re_lu_squared
    split_camel = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", words.strip())
    name = re.sub(r"[^a-z0-9]+", "_", split_camel.lower()).strip("_")
    return name if is_operation_name(name) else None


def is_operation_name(name: str) -> bool:
    """Whether it can name a module, a function and a file."""
    return (
        bool(OPERATION_NAME.fullmatch(name)) and not keyword.iskeyword(name) and name not in _FILENAMES_TAKEN
    )


def class_stem(name: str) -> str:
    """The middle of the class names: "relu_squared" -> "ReLUSquared"."""
    return "".join(_SPELLING.get(part, part[:1].upper() + part[1:]) for part in name.split("_") if part)
