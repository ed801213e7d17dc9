"""A comment's text -> the one command in it, or the mistake to answer. Pure.

Grammar: `/liger <verb> …` at the start of a line of a plain paragraph: not in code, quotes, lists or HTML. One a comment.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rapidfuzz import process
from rapidfuzz.distance import DamerauLevenshtein

from app.verbs import USAGE, Verb

MAX_COMMENT_CHARS = 65_536  # what GitHub accepts in one comment
# Block structure is the same with or without emphasis and links; leaving them out keeps hostile Markdown cheap to parse.
_MARKDOWN = MarkdownIt("commonmark").disable(["emphasis", "link", "image", "autolink", "entity", "reference"])
_CANDIDATE = re.compile(r"^( {0,3})/liger(?=[ \t]|$)", re.IGNORECASE | re.MULTILINE)
# Stands for "/liger" while the text is parsed, so that a command can be told from the same words inside code or HTML.
_SENTINEL = "\ue000{}\ue001"
_SENTINEL_FOUND = re.compile("\ue000(\\d+)\ue001")
# Which fenced block below a command belongs to it.
_FENCES = {
    "dev": frozenset({"python", "py", "python3"}),
    "autopatch": frozenset({"json", "jsonc"}),
}


_FLAG_NAMES = re.compile(r"\w+(,\w+)*")
_PERF_FLAGS: dict[str, tuple[str, ...] | None] = {
    "goal": ("speed", "memory", "balanced"),
    "scope": ("forward", "backward", "full"),
    "max-variants": None,
    "target": None,
    "auto": (),  # takes no value
}


@dataclass(frozen=True)
class Command:
    """One well-formed command. `text` is a person's words: data."""

    verb: Verb
    text: str = ""
    block: str | None = None
    flags: dict[str, str] = field(default_factory=dict)
    changes: dict[str, str] = field(default_factory=dict)
    topic: Verb | None = None


@dataclass(frozen=True)
class Mistake:
    """A command that can't be followed: what is wrong, and what to type instead."""

    what: str
    next_command: str = "/liger help"
    suggestion: str | None = None


def parse(text: str) -> Command | Mistake | None:
    """The command in a comment; None when there is none, a Mistake when it can't be followed."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if _CANDIDATE.search(text) is None:
        return None
    if len(text) > MAX_COMMENT_CHARS:
        return Mistake(
            f"the comment is {len(text):,} characters long and at most {MAX_COMMENT_CHARS:,} are read",
            "/liger help",
        )
    lines, tokens = _live_lines(text)
    if not lines:
        return None
    if len(lines) > 1:
        shown = " and ".join(f"`{_shorten(text.splitlines()[line].strip())}`" for line in lines[:2])
        return Mistake(f"there are {len(lines)} commands in one comment ({shown}); one a comment is followed")
    (line,) = lines
    rest = text.split("\n")[line].strip()[len("/liger") :].strip()
    return _command(rest, tokens, line)


def _live_lines(text: str) -> tuple[list[int], list[Token]]:
    """Numbers of the lines on which a command stands, and the document's tokens."""
    text = text.replace("\ue000", "").replace("\ue001", "")
    starts = [match.start() for match in _CANDIDATE.finditer(text)]
    numbers = [text.count("\n", 0, start) for start in starts]
    counter = iter(range(len(starts)))
    tokens = _MARKDOWN.parse(_CANDIDATE.sub(lambda match: match[1] + _SENTINEL.format(next(counter)), text))
    live: list[int] = []
    for before, token in pairwise(tokens):
        if token.type != "inline" or before.type != "paragraph_open" or before.level != 0:
            continue
        for child in token.children or []:
            if child.type == "text":
                live += [numbers[int(found)] for found in _SENTINEL_FOUND.findall(child.content)]
    return live, tokens


def _block_below(tokens: list[Token], line: int, verb: Verb) -> str | None:
    """The first block of the verb's language after that line, outside quotes and lists."""
    for token in tokens:
        if token.type == "fence" and token.level == 0 and token.map and token.map[0] > line:
            language = token.info.strip().split(" ")[0].lower()
            if language in _FENCES[verb]:
                return token.content
    return None


def _command(rest: str, tokens: list[Token], line: int) -> Command | Mistake:
    word, _, arguments = rest.partition(" ")
    arguments = arguments.strip()
    if not word:
        return Mistake("`/liger` needs a verb")
    try:
        verb = Verb(word.lower())
    except ValueError:
        return _unknown_verb(word, arguments)
    match verb:
        case Verb.dev:
            return _dev(arguments, _block_below(tokens, line, verb))
        case Verb.help:
            return _help(arguments)
        case Verb.revise:
            return _revise(arguments)
        case Verb.perf:
            return _perf(arguments)
        case Verb.autopatch:
            return _autopatch(arguments, _block_below(tokens, line, verb))
        case Verb.reject:
            return Command(verb, arguments)
        case Verb.approve:
            return _approve(arguments)
        case _:
            if arguments:
                return Mistake(
                    f"`{verb}` takes no arguments, and got `{_shorten(arguments)}`", f"/liger {verb}"
                )
            return Command(verb)


def _unknown_verb(word: str, arguments: str) -> Mistake:
    near = _nearest(word.lower(), [verb.value for verb in Verb])
    if near is None:
        return Mistake(f"there is no verb `{_shorten(word)}`")
    example = f"/liger {near} {arguments}".strip() if arguments else USAGE[Verb(near)].example
    return Mistake(f"there is no verb `{_shorten(word)}`", _shorten(example), suggestion=near)


def _dev(arguments: str, block: str | None) -> Command | Mistake:
    if arguments.startswith("--"):
        return Mistake(
            f"`dev` has no flag `{_shorten(arguments.split(maxsplit=1)[0])}`", USAGE[Verb.dev].example
        )
    op = _op_text(arguments)
    if not op and block is None:
        return Mistake(
            "`dev` needs an op: a name, an expression, a URL, or a ```python block below the command",
            USAGE[Verb.dev].example,
        )
    return Command(Verb.dev, op, block)


def _autopatch(arguments: str, block: str | None) -> Command | Mistake:
    example = USAGE[Verb.autopatch].example
    model = _op_text(arguments)
    words = _words(model)
    if isinstance(words, Mistake):
        return Mistake(words.what, example)
    queue, names = iter(words), []
    for word in queue:
        if not word.startswith("--"):
            names.append(word)
        elif word == "--add":
            if not _FLAG_NAMES.fullmatch(next(queue, "")):
                return Mistake(
                    "`--add` needs the name of a flag",
                    f"/liger autopatch {names[0] if names else 'qwen3'} --add swiglu",
                )
        elif word != "--refresh" and not word.startswith("--add="):
            return Mistake(f"`autopatch` has no flag `{_shorten(word)}`", example)
    if len(names) > 1:
        return Mistake(
            f"`autopatch` needs one model, and got {len(names)}", f"/liger autopatch {_shorten(names[0])}"
        )
    if not names and block is None:
        return Mistake(
            "`autopatch` needs a model type, a class, or a config.json in a ```json block below the command",
            example,
        )
    return Command(Verb.autopatch, model, block)


def _op_text(arguments: str) -> str:
    """The op as written. Quotes or backticks around the whole of it, and Markdown's escapes, are not part of it."""
    if len(arguments) >= 2 and arguments[0] == arguments[-1] and arguments[0] in "\"'`":
        inner = arguments[1:-1]
        if arguments[0] not in inner:
            arguments = inner.strip()
    return re.sub(r"\\([*_`~\[\]()#<>|+-])", r"\1", arguments)


def _help(arguments: str) -> Command | Mistake:
    if not arguments:
        return Command(Verb.help)
    try:
        return Command(Verb.help, topic=Verb(arguments.lower()))
    except ValueError:
        near = _nearest(arguments.lower(), [verb.value for verb in Verb])
        return Mistake(
            f"there is no verb `{_shorten(arguments)}`",
            f"/liger help {near}" if near else "/liger help",
            suggestion=near,
        )


def _approve(arguments: str) -> Command | Mistake:
    digest = arguments.strip("`").lower()
    if digest and not re.fullmatch(r"[0-9a-f]{6,64}", digest):
        return Mistake(
            f"`approve` takes nothing, or the first digits of the profile's hash; got `{_shorten(arguments)}`",
            "/liger approve",
        )
    return Command(Verb.approve, digest)


def _words(arguments: str) -> list[str] | Mistake:
    try:
        return shlex.split(arguments)
    except ValueError:
        return Mistake("a quote is opened and not closed")


def _revise(arguments: str) -> Command | Mistake:
    example = USAGE[Verb.revise].example
    words = _words(arguments)
    if isinstance(words, Mistake):
        return Mistake(words.what, example)
    if not words:
        return Mistake("`revise` needs at least one key=value", example)
    changes: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            return Mistake(f"`revise` takes key=value, and got `{_shorten(word)}`", example)
        if key in changes:
            return Mistake(f"`{_shorten(key)}` is given twice", example)
        changes[key] = value
    return Command(Verb.revise, arguments, changes=changes)


def _perf(arguments: str) -> Command | Mistake:
    example = USAGE[Verb.perf].example
    words = _words(arguments)
    if isinstance(words, Mistake):
        return Mistake(words.what, example)
    kernels: list[str] = []
    flags: dict[str, str] = {}
    queue = iter(words)
    for word in queue:
        if not word.startswith("--"):
            kernels.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        name = name.lower()
        if name not in _PERF_FLAGS:
            near = _nearest(name, list(_PERF_FLAGS))
            return Mistake(
                f"`perf` has no flag `--{_shorten(name)}`", example, suggestion=f"--{near}" if near else None
            )
        choices = _PERF_FLAGS[name]
        if choices == ():
            flags[name] = "true"
            continue
        if not equals:
            value = next(queue, "")
        if not value or (choices and value.lower() not in choices):
            wanted = " or ".join(choices) if choices else "a value"
            return Mistake(f"`--{name}` needs {wanted}", example)
        flags[name] = value.lower() if choices else value
    if len(kernels) != 1:
        return Mistake(f"`perf` needs one kernel, and got {len(kernels)}", example)
    return Command(Verb.perf, kernels[0], flags=flags)


def _nearest(word: str, known: list[str]) -> str | None:
    found = process.extractOne(word, known, scorer=DamerauLevenshtein.normalized_similarity, score_cutoff=0.5)
    return found[0] if found else None


def _shorten(text: str, limit: int = 60) -> str:
    """At most `limit` characters, without what would end inline code."""
    text = text.replace("`", "'")
    return text if len(text) <= limit else text[: limit - 1] + "…"
