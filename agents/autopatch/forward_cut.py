"""A causal LM's forward, cut into statements: before the logits, the logits, the loss, after it. Pure.

What Liger's fused loss can't compute (a z-loss on the logits, a loss that doesn't shift) is refused with the line that says so.
"""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass

from agents.autopatch.model_profile import ModelProfile
from kernels.syntax import syntax_tree

KEEP_LINES = """\
# Only compute necessary logits, and do not upcast them to float if we are not computing the loss
slice_indices = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
"""


class Unpatchable(Exception):  # noqa: N818 - names what the forward is
    """The forward has something that lce_forward can't be made from; the message quotes it."""


@dataclass
class CutForward:
    """A forward, cut.

    hidden: expression of the kept hidden states · scale, softcap: what is done to the logits besides · logits_lines: the
    statements that do it, as written.
    """

    node: ast.FunctionDef
    before: list[str]
    head_call: ast.Call
    hidden: str
    sliced: bool
    logits_lines: list[str]
    scale: str | None
    softcap: str | None
    vocab_size: str
    after: list[str]
    returned: ast.Call


def decoder_config(profile: ModelProfile) -> str:
    """The expression of the config that sizes the text decoder: a part of the whole model's, where there are other parts."""
    composed = profile.text_model_type and not profile.causal_class.endswith("ForCausalLM")
    return "self.config.get_text_config()" if composed else "self.config"


def cut_forward(source: str, profile: ModelProfile) -> CutForward:
    """Cut the text of a forward. Raises Unpatchable."""
    source = _with_logits_named(source, profile)
    node = syntax_tree(source).body[0]
    if not isinstance(node, ast.FunctionDef):
        raise Unpatchable(f"the forward of {profile.causal_class} is not a plain method")
    statements = node.body[1:] if ast.get_docstring(node, clean=False) is not None else list(node.body)
    texts = _texts(source, node, statements)
    head = next(
        (i for i, s in enumerate(statements) if _assigned(s) == "logits" and _head_call(s, profile)), None
    )
    if head is None:
        raise Unpatchable(
            f"no `logits = self.{profile.forward.head_attribute}(...)` in {profile.causal_class}.forward"
        )
    loss = next((i for i, s in enumerate(statements) if i > head and _is_loss_block(s)), None)
    if loss is None:
        raise Unpatchable(
            f"{profile.causal_class}.forward has no `if labels is not None:` block after the logits"
        )
    call = _head_call(statements[head], profile)
    assert call is not None  # noqa: S101 - `head` was found by it
    before, hidden, sliced = _before(statements[:head], texts[:head], call)
    scale, logits_lines, softcap = _logits(statements, texts, head, loss, profile)
    last = statements[-1]
    if not isinstance(last, ast.Return) or not isinstance(last.value, ast.Call):
        raise Unpatchable(f"{profile.causal_class}.forward doesn't end by returning an output object")
    return CutForward(
        node=node,
        before=before,
        head_call=call,
        hidden=hidden,
        sliced=sliced,
        logits_lines=logits_lines,
        scale=scale,
        softcap=softcap,
        vocab_size=_vocab_size(statements[loss], profile),
        after=texts[loss + 1 : -1],
        returned=last.value,
    )


def _with_logits_named(source: str, profile: ModelProfile) -> str:
    """The forward with `lm_logits = self.lm_head(...)` called `logits`, as Liger's pattern has it, where that name is free."""
    head = re.search(
        rf"^\s+(\w+) = self\.{re.escape(profile.forward.head_attribute)}\(", source, re.MULTILINE
    )
    names = {node.id for node in ast.walk(syntax_tree(source)) if isinstance(node, ast.Name)}
    if head is None or head[1] == "logits" or "logits" in names:
        return source
    return re.sub(rf"\b{head[1]}\b", "logits", source)


def _texts(source: str, node: ast.FunctionDef, statements: list[ast.stmt]) -> list[str]:
    """Each statement's own text, with the comments above it."""
    lines = source.splitlines()
    start = (node.body[0].end_lineno if node.body[0] is not statements[0] else statements[0].lineno - 1) or 0
    texts = []
    for statement in statements:
        end = statement.end_lineno or statement.lineno
        text = textwrap.dedent("\n".join(lines[start:end])).strip("\n")
        if isinstance(statement, ast.AnnAssign):
            # the annotation would need an import that some supported transformers lacks
            target, annotation = ast.unparse(statement.target), ast.unparse(statement.annotation)
            text = text.replace(f"{target}: {annotation} =", f"{target} =", 1)
        texts.append(text)
        start = end
    return texts


def _assigned(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        return ast.unparse(statement.targets[0])
    if isinstance(statement, ast.AnnAssign):
        return ast.unparse(statement.target)
    return None


def _head_call(statement: ast.stmt, profile: ModelProfile) -> ast.Call | None:
    target = f"self.{profile.forward.head_attribute}"
    calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call) and ast.unparse(n.func) == target]
    return calls[0] if len(calls) == 1 and len(calls[0].args) == 1 else None


def _is_loss_block(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and ast.unparse(statement.test) == "labels is not None"


def _before(statements: list[ast.stmt], texts: list[str], call: ast.Call) -> tuple[list[str], str, bool]:
    """Statements before the logits, the expression of the kept hidden states, and whether they are sliced."""
    kept: list[str] = []
    sliced = False
    argument = ast.unparse(call.args[0])
    for statement, text in zip(statements, texts, strict=True):
        value = getattr(statement, "value", None)
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "slice_logits_to_keep":
            states = ast.unparse(value.args[0])
            kept.append(f"\n{KEEP_LINES}kept_hidden_states = {_indexed(states)}[:, slice_indices, :]")
            if argument == (_assigned(statement) or argument):
                argument = "kept_hidden_states"
            else:
                argument = re.sub(rf"\b{_assigned(statement)}\b", "kept_hidden_states", argument)
            sliced = True
        elif _assigned(statement) == "slice_indices":
            continue
        elif _assigned(statement) not in {"loss", "logits"} or not isinstance(value, ast.Constant):
            kept.append(text)
    indexed = re.fullmatch(r"(.+)\[:, slice_indices, :\](.*)", argument)
    if indexed:
        kept.append(f"\n{KEEP_LINES}kept_hidden_states = {indexed[1]}[:, slice_indices, :]")
        argument, sliced = f"kept_hidden_states{indexed[2]}", True
    if not sliced:
        kept.append(f"\nkept_hidden_states = {argument}")
        argument = "kept_hidden_states"
    return kept, argument, sliced


def _indexed(expression: str) -> str:
    return expression if re.fullmatch(r"[\w.\[\]]+", expression) else f"({expression})"


def _logits(
    statements: list[ast.stmt], texts: list[str], head: int, loss: int, profile: ModelProfile
) -> tuple[str | None, list[str], str | None]:
    """(scale, lines that finish the logits, softcap expression) from the statements between head and loss."""
    target = f"self.{profile.forward.head_attribute}"
    scale = _scale_of(statements[head].value, target, texts[head])  # type: ignore[attr-defined]
    softcap: str | None = None
    lines: list[str] = []
    for statement, text in list(zip(statements, texts, strict=True))[head + 1 : loss]:
        value = getattr(statement, "value", None)
        if _assigned(statement) == "loss" and isinstance(value, ast.Constant):
            continue
        lines.append(text)
        if profile.forward.softcap and any(
            word in text for word in (profile.forward.softcap, "tanh", "softcap(", "soft_cap(")
        ):
            read = re.search(rf"self\.config(?:\.\w+(?:\(\))?)*\.{profile.forward.softcap}\b", text)
            softcap = read[0] if read else softcap or f"{decoder_config(profile)}.{profile.forward.softcap}"
            continue
        if _assigned(statement) != "logits":
            raise Unpatchable(f"the fused loss can't follow `{text.strip().splitlines()[0]}` on the logits")
        more = _scale_of(value, "logits", text)
        scale = (scale or "") + more if more else scale
    return scale, lines, softcap


def _scale_of(value: ast.expr | None, base: str, text: str) -> str | None:
    """ "/ self.config.x" of `base(...) / self.config.x`; None for base itself, a cast or a contiguous copy of it."""
    if (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in {"float", "to", "contiguous"}
    ):
        return _scale_of(value.func.value, base, text)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div | ast.Mult):
        inner = _scale_of(value.left, base, text)
        sign = "/" if isinstance(value.op, ast.Div) else "*"
        return f"{inner or ''} {sign} {ast.unparse(value.right)}"
    plain = ast.unparse(value) if value is not None else ""
    if plain == base or (isinstance(value, ast.Call) and ast.unparse(value.func) == base):
        return None
    raise Unpatchable(f"the fused loss can't follow `{text.strip().splitlines()[0]}` on the logits")


def _vocab_size(block: ast.stmt, profile: ModelProfile) -> str:
    """The vocab_size expression of the only thing the block may do: `loss = self.loss_function(...)`."""
    assert isinstance(block, ast.If)  # noqa: S101 - chosen by _is_loss_block
    rest = [s for s in block.body if ast.unparse(s) != "labels = labels.to(logits.device)"]
    value = getattr(rest[0], "value", None) if rest else None
    if not isinstance(value, ast.Call) or ast.unparse(value.func) != "self.loss_function":
        raise Unpatchable(
            f"the loss of {profile.causal_class} is not self.loss_function, so its shift is not known"
        )
    if len(rest) > 1:
        raise Unpatchable(
            f"{profile.causal_class} adds to its loss from the logits: `{ast.unparse(rest[1])[:80]}`"
        )
    named = {k.arg: ast.unparse(k.value) for k in value.keywords if k.arg}
    positional = [ast.unparse(argument) for argument in value.args]
    return named.get("vocab_size") or (positional[2] if len(positional) > 2 else "self.config.vocab_size")
