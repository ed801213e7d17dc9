"""What a person asked for: a known op, an expression, a dotted path, a ```python block, a link, or free text. Pure."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field

from agents.catalog.lookup import catalog
from agents.dev.expression import looks_like_expression, parse_expression
from agents.dev.expression_functions import FUNCTIONS
from agents.dev.github_url import FetchedReference, GitHubUrl, is_url, parse_github_url
from agents.dev.naming import operation_name
from agents.dev.recognise import recognise
from agents.dev.reference_source import extract_reference, read_block
from agents.dev.refused import Mistake, Refused
from kernels.op_spec import Frozen, OpSpec

InputKind = Literal["catalog", "expression", "dotted_path", "python_block", "url", "free_text"]
_DOTTED = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)(?P<mark>[.:])(?P<name>[A-Za-z_]\w*)")
_ROOTS = {"torch", "transformers", "math", "nn", "F"}  # `F.silu` alone is a dotted path, `a.b` a typing slip


class OpInput(Frozen):
    """A request's op, classified. `op` is the reference when it is known without a job or a fetch."""

    kind: InputKind
    text: str
    source: str = Field(description="where the reference comes from, for people")
    op: OpSpec | None = None
    class_stem: str | None = Field(
        default=None, description='the middle of class names when the catalog spells it, e.g. "ReLUSquared"'
    )
    dotted_path: str | None = Field(default=None, description='"package.module:Name"')
    url: GitHubUrl | None = None
    questions: tuple[str, ...] = ()
    known: str | None = Field(default=None, description="the known op that it is, by name or by value")
    nearest: tuple[str, ...] = Field(default=(), description="known ops nearest to free text")


def classify(op_text: str, python_block: str | None = None, *, host: str = "github.com") -> OpInput | Refused:
    """Classify the words after `/liger dev` and the block below them. `host`: the GitHub that links may point to."""
    text = op_text.strip().strip("`").strip()
    try:
        if python_block is not None:
            return _block(text, python_block)
        if not text:
            raise Mistake(
                "Say which op.", suggestions=("/liger dev relu_squared", "/liger dev x * sigmoid(1.702 * x)")
            )
        if is_url(text):
            url = parse_github_url(text, host)
            return OpInput(kind="url", text=text, source=url.url, url=url)
        return _known(text) or _dotted(text) or _expression(text) or _words(text)
    except Mistake as mistake:
        return mistake.refused


def from_fetched(fetched: FetchedReference, name: str | None = None) -> OpInput | Refused:
    """Classify a link whose text the app has fetched."""
    try:
        found = extract_reference(fetched.text, fetched.url.lines, name)
    except Mistake as mistake:
        return mistake.refused
    pinned = f" at {fetched.commit[:12]}" if fetched.commit else ""
    op = OpSpec(
        name=_name(found.entry),
        entry=found.entry,
        source=found.source,
        kind="module" if found.kind == "module" else "function",
    )
    return OpInput(
        kind="url",
        text=fetched.url.url,
        source=f"{fetched.url.url}{pinned}",
        op=op,
        url=fetched.url,
        questions=found.questions,
    )


def _known(text: str) -> OpInput | None:
    known = catalog().find(text)
    if known is None:
        return None
    return OpInput(
        kind="catalog",
        text=text,
        source=known.source,
        op=known.op,
        class_stem=known.class_name,
        known=known.op.name,
    )


def _block(text: str, block: str) -> OpInput:
    wanted = operation_name(text) if text else None
    found = read_block(block, wanted)
    name = wanted or _name(found.entry)
    known = catalog().find(text) if text else None
    questions = list(found.questions)
    if known is not None:
        questions.append(
            f"`{text}` is also a known op; the reference in the block was used, not the catalog's."
        )
    op = OpSpec(
        name=name,
        entry=found.entry,
        source=found.source,
        kind="module" if found.kind == "module" else "function",
    )
    return OpInput(
        kind="python_block",
        text=text,
        source="the ```python block of the request",
        op=op,
        questions=tuple(questions),
    )


def _dotted(text: str) -> OpInput | None:
    match = _DOTTED.fullmatch(text)
    if match is None or (
        match["mark"] == "." and match["module"].count(".") == 0 and match["module"] not in _ROOTS
    ):
        return None
    module = {"F": "torch.nn.functional", "nn": "torch.nn"}.get(match["module"], match["module"])
    source = f"{module}.{match['name']}, an installed package"
    if module.split(".")[0] == "torch":
        return _of_torch(text, module, match["name"], source)
    known = catalog().find(match["name"])
    return OpInput(
        kind="dotted_path",
        text=text,
        source=source,
        op=OpSpec(
            name=known.op.name if known else _name(match["name"]),
            entry=match["name"],
            source="",
            kind="module" if match["name"][0].isupper() else "function",
        ),
        class_stem=known.class_name if known else None,
        dotted_path=f"{module}:{match['name']}",
    )


def _of_torch(text: str, module: str, name: str, source: str) -> OpInput:
    """PyTorch's own functions: their bodies end in C++, so the call itself is the reference."""
    known = catalog().find(name)
    if known is not None:
        return OpInput(
            kind="catalog",
            text=text,
            source=source,
            op=known.op,
            class_stem=known.class_name,
            known=known.op.name,
        )
    if name in FUNCTIONS:
        op = parse_expression(f"{name}(x)", FUNCTIONS[name].name).op
        return OpInput(kind="expression", text=text, source=source, op=op)
    nearest = tuple(f"/liger dev {op_name}" for op_name in catalog().nearest(name))
    raise Mistake(
        f"`{module}.{name}` is compiled into PyTorch: there is no source to read.",
        needed="An expression or a ```python block that calls it.",
        suggestions=nearest,
    )


def _expression(text: str) -> OpInput | None:
    if not looks_like_expression(text):
        return None
    parsed = parse_expression(text)
    source = f"the expression of the request: {parsed.body}"
    same = recognise(parsed)
    if same is None:
        return OpInput(kind="expression", text=text, source=source, op=parsed.op, questions=parsed.questions)
    known, order = same
    if parsed.name is not None:
        return OpInput(
            kind="expression",
            text=text,
            source=source,
            op=parsed.op,
            questions=parsed.questions,
            known=known.op.name,
        )
    # The catalog's name, and its order of arguments, are better than what the expression alone gives.
    arguments = [*order, *(f"{scalar.name}={scalar.default!r}" for scalar in parsed.op.scalars)]
    named = parse_expression(f"{known.op.name}({', '.join(arguments)}) = {parsed.body}")
    op = named.op.model_copy(update={"summary": parsed.op.summary})
    questions = tuple(question for question in parsed.questions if "operation_name=" not in question)
    return OpInput(
        kind="expression",
        text=text,
        source=source,
        op=op,
        class_stem=known.class_name,
        questions=questions,
        known=known.op.name,
    )


def _words(text: str) -> OpInput:
    if len(text.split()) == 1:
        nearest = catalog().nearest(text)
        raise Mistake(
            f"`{text[:80]}` is not an op that I know.",
            needed="A known name, an expression, a dotted path (package.module:Name), a link to code, or a ```python block below the command.",
            suggestions=tuple(f"/liger dev {name}" for name in nearest),
        )
    return OpInput(
        kind="free_text",
        text=text,
        source="free text, written as a reference by the model",
        nearest=tuple(catalog().mentioned(text)),
    )


def _name(entry: str) -> str:
    return operation_name(re.sub(r"(Activation|Function|Module|Layer)$", "", entry)) or "custom_op"
