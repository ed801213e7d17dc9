"""`model/{m}.py`: lce_forward, made from the model's own forward. Pure; text in, text out.

The method is cut into statements. What comes before the logits and what comes after the loss stays as HuggingFace wrote
it; between them goes Liger's fused loss, with the original as the path that materializes the logits.
"""

from __future__ import annotations

import ast
import builtins
import re
import textwrap

from agents.autopatch.forward_cut import CutForward, Unpatchable, cut_forward, decoder_config
from agents.autopatch.layout import Layout
from agents.autopatch.model_profile import ModelProfile
from kernels.syntax import syntax_tree

DROPPED_DECORATORS = {
    "auto_docstring",
    "add_start_docstrings_to_model_forward",
    "replace_return_docstrings",
    "add_code_sample_docstrings",
    "add_start_docstrings",
}
TYPING = {"Any", "Callable", "Dict", "List", "Optional", "Tuple", "Union"}
LOSS_KWARGS_LINES = """
# the fused loss refuses arguments that it doesn't know
loss_kwargs = {name: value for name, value in kwargs.items() if name in LOSS_ARGUMENTS}"""
GIVEN = {
    "hidden_states", "lm_head_weight", "labels", "hidden_size", "shift_labels", "final_logit_softcapping",
    "input", "weight", "target", "bias", "reduction", "softcap",
}  # fmt: skip
SKIP_LINES = """\
if skip_logits and labels is None and shift_labels is None:
    raise ValueError("skip_logits is True, but labels and shift_labels are None")

if skip_logits is None:
    # By default, if in training mode, don't materialize logits
    skip_logits = self.training and (labels is not None or shift_labels is not None)
"""


def model_file(profile: ModelProfile, layout: Layout) -> str:
    """Text of the new module, before formatting. Raises Unpatchable."""
    source = textwrap.dedent(profile.forward.source)
    cut = cut_forward(source, profile)
    body = [*cut.before, *_loss_lines(cut, profile, layout), *cut.after, _return(cut, layout)]
    signature = _signature(cut.node)
    output = output_name(profile, layout)
    decorators = "".join(f"@{ast.unparse(d)}\n" for d in cut.node.decorator_list if _kept(d))
    documentation = ast.get_docstring(cut.node, clean=True)
    lines = _docstring(documentation) + "\n".join(text.rstrip() for text in body) + "\n"
    function = f"{decorators}def lce_forward(\n    self,\n{signature}\n) -> Union[Tuple, {output}]:\n"
    function += textwrap.indent(lines, "    ")
    return _imports(function, profile, layout) + "\n\n" + function


def output_name(profile: ModelProfile, layout: Layout) -> str:
    """The class that lce_forward returns: Liger's with a token accuracy where the checkout has such classes."""
    return (
        f"Liger{profile.forward.output_class}" if layout.has_output_classes else profile.forward.output_class
    )


def _signature(node: ast.FunctionDef) -> str:
    """The forward's own parameters with `skip_logits`, one a line, in the typing style of the sibling files."""
    arguments = node.args
    if arguments.vararg:
        raise Unpatchable("the forward takes *args")
    named = [*arguments.posonlyargs, *arguments.args][1:]
    defaults: list[ast.expr | None] = [None] * (len(named) - len(arguments.defaults)) + list(
        arguments.defaults
    )
    lines = [_parameter(a, d) for a, d in zip(named, defaults, strict=True)]
    own = {a.arg for a in named} | {a.arg for a in arguments.kwonlyargs}
    if "skip_logits" not in own:
        lines.append("skip_logits: Optional[bool] = None")
    if arguments.kwonlyargs:
        lines.append("*")
        lines += [_parameter(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    lines.append("**kwargs")
    return "\n".join(f"    {line}," for line in lines)


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg
    if argument.annotation is not None:
        text += f": {_typing(argument.annotation)}"
    if default is not None:
        text += (
            f" = {ast.unparse(default)}" if argument.annotation is not None else f"={ast.unparse(default)}"
        )
    return text


def _typing(annotation: ast.expr) -> str:
    """`X | None` as Optional[X], `X | Y` as Union[X, Y], builtin generics as typing's: what the siblings write."""
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        members = _members(annotation)
        types = [m for m in members if ast.unparse(m) != "None"]
        text = _typing(types[0]) if len(types) == 1 else f"Union[{', '.join(map(_typing, types))}]"
        return f"Optional[{text}]" if len(types) < len(members) else text
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) in {"tuple", "list", "dict"}:
        inner = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        return f"{ast.unparse(annotation.value).capitalize()}[{', '.join(map(_typing, inner))}]"
    return ast.unparse(annotation)


def _members(annotation: ast.expr) -> list[ast.expr]:
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        return [*_members(annotation.left), *_members(annotation.right)]
    return [annotation]


def _docstring(text: str | None) -> str:
    if not text:
        return ""
    quotes = "'''" if '"""' in text else '"""'
    return f"r{quotes}\n{text.rstrip()}\n{quotes}\n"


def _loss_lines(cut: CutForward, profile: ModelProfile, layout: Layout) -> list[str]:
    """Liger's pattern: no logits in training unless asked for; the model's own loss otherwise."""
    head = f"self.{profile.forward.head_attribute}"
    config = "self.config.text_config" if ".text_config." in cut.vocab_size else decoder_config(profile)
    states = cut.hidden if cut.scale is None else f"{_bracketed(cut.hidden)}{cut.scale}"
    # a slice of the sequence is not contiguous, and the loss flattens with view
    states = f"({states}).contiguous()" if not re.fullmatch(r"[\w.]+", states) else f"{states}.contiguous()"
    states = states if cut.sliced else states.removesuffix(".contiguous()")
    size = f"{config}.hidden_size" if profile.forward.config_has_hidden_size else f"{head}.weight.shape[-1]"
    common = ["labels=labels", "shift_labels=shift_labels", f"hidden_size={size}"]
    if cut.softcap:
        common.append(f"final_logit_softcapping={cut.softcap}")
    if profile.forward.head_bias:
        if "bias" not in layout.loss_parameters:
            raise Unpatchable("its head has a bias, and this checkout's fused loss takes none")
        common.append(f"bias={head}.bias")
    if layout.trainable_head and profile.forward.head_attribute == "lm_head":
        name, first = "lce_maybe_trainable_lm_head", ["self", f"hidden_states={states}"]
    else:
        name, first = "LigerForCausalLMLoss", [f"hidden_states={states}", f"lm_head_weight={head}.weight"]
    passed = "kwargs" if layout.loss_filters else "loss_kwargs"
    call = f"{name}(\n" + "".join(f"        {a},\n" for a in [*first, *common, f"**{passed}"]) + "    )"
    lines = ['\nshift_labels = kwargs.pop("shift_labels", None)', "logits = None", "loss = None"]
    lines += [f"{name} = None" for name in extra_outputs(layout)]
    lines.append(f"\n{SKIP_LINES}")
    if layout.unpacked:
        fused = f"    result = {call}\n    {', '.join(layout.unpacked)} = unpack_cross_entropy_result(result)"
    else:
        fused = f"    loss = {call}"
    finish = "".join(textwrap.indent(text.strip("\n"), "    ") + "\n" for text in cut.logits_lines)
    head_line = f"    logits = {head}({cut.hidden}){_head_suffix(cut)}\n"
    plain = (
        "    if labels is not None or shift_labels is not None:\n        loss = self.loss_function(\n"
        "            logits=logits,\n            labels=labels,\n            shift_labels=shift_labels,\n"
        f"            vocab_size={cut.vocab_size},\n            **kwargs,\n        )"
    )
    if not layout.loss_filters:
        lines.append(LOSS_KWARGS_LINES)
    lines.append(f"\n# Compute loss\nif skip_logits:\n{fused}\nelse:\n{head_line}{finish}{plain}\n")
    return lines


def _bracketed(expression: str) -> str:
    return expression if re.fullmatch(r"[\w.]+(\(.*\))?", expression) else f"({expression})"


def _head_suffix(cut: CutForward) -> str:
    """What the statement of the head does to its result in the same expression: a cast or a scale."""
    statement = next(s for s in cut.node.body if any(n is cut.head_call for n in ast.walk(s)))
    whole, call = ast.unparse(statement.value), ast.unparse(cut.head_call)  # type: ignore[attr-defined]
    return whole.removeprefix(call) if whole.startswith(call) else ""


def extra_outputs(layout: Layout) -> list[str]:
    """Fields that the checkout's output classes have beyond HuggingFace's: what the fused loss returns besides the loss."""
    return [name for name in layout.unpacked if name not in {"loss", "_"}]


def _return(cut: CutForward, layout: Layout) -> str:
    call = cut.returned
    name = ast.unparse(call.func)
    arguments = [ast.unparse(a) for a in call.args]
    arguments += [
        f"{k.arg}={ast.unparse(k.value)}" if k.arg else f"**{ast.unparse(k.value)}" for k in call.keywords
    ]
    comment = ""
    if layout.has_output_classes:
        name = f"Liger{name}"
        arguments += [f"{name}={name}" for name in extra_outputs(layout)]
        comment = "# Return custom output class with token_accuracy field\n"
    return f"\n{comment}return {name}(\n" + "".join(f"    {a},\n" for a in arguments) + ")"


def _kept(decorator: ast.expr) -> bool:
    """Decorators that only write documentation are dropped; the rest is behaviour."""
    call = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(call).rsplit(".", 1)[-1] not in DROPPED_DECORATORS


def _imports(function: str, profile: ModelProfile, layout: Layout) -> str:
    tree = syntax_tree(function)
    local = {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    local |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - local - set(dir(builtins))
    lines = [f"from typing import {name}" for name in sorted(used & TYPING)]
    used -= TYPING
    groups: dict[str, str] = {}
    model = layout.module("model")
    for name, module in (
        ("lce_maybe_trainable_lm_head", f"{model}.llama"),
        ("LigerForCausalLMLoss", f"{model}.loss_utils"),
        ("unpack_cross_entropy_result", f"{model}.loss_utils"),
    ):
        groups[name] = f"from {module} import {name}"
    if layout.has_output_classes:
        output = output_name(profile, layout)
        groups[output] = f"from {model}.output_classes import {output}"
    given = _given(profile)
    top, own = [], []
    for name in sorted(used):
        if name in groups:
            own.append(groups[name])
        elif name in {"torch", "LOSS_ARGUMENTS"}:
            continue
        elif name == "logger":
            lines.insert(0, "import logging\n")
        else:
            top.append(given.get(name, f"from {profile.modeling_module} import {name}"))
    text = "\n".join(lines) + "\n"
    text += "\nimport torch\n" if "torch" in used else ""
    text += "\n" + "\n".join(dict.fromkeys(top)) + "\n" if top else ""
    text += "\n" + "\n".join(own) + "\n"
    if "LOSS_ARGUMENTS" in used:
        names = sorted(set(layout.loss_parameters) - GIVEN)
        text += "\nLOSS_ARGUMENTS = {" + ", ".join(f'"{name}"' for name in names) + "}\n"
    return text + ("\nlogger = logging.getLogger(__name__)\n" if "logger" in used else "")


def _given(profile: ModelProfile) -> dict[str, str]:
    """name -> its import line, from the profile's absolute imports."""
    found: dict[str, str] = {}
    for line in profile.forward.imports:
        for node in syntax_tree(line).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    renamed = f" as {alias.asname}" if alias.asname else ""
                    found[alias.asname or alias.name] = f"from {node.module} import {alias.name}{renamed}"
            elif isinstance(node, ast.Import):
                found |= {(a.asname or a.name).split(".")[0]: line for a in node.names}
    return found
