"""Targeted edits of an existing apply_liger_kernel_to_{m}: a parameter, its documentation, class path, instance path. Pure.

The function's own style is followed: where its siblings replace classes whether or not an instance is given, so does the new
line. Nothing that is there already is written again.
"""

from __future__ import annotations

import ast
import re
import textwrap

from agents.autopatch.layout import Layout
from agents.autopatch.model_profile import ModelProfile
from agents.autopatch.patch_function import (
    ARGUMENTS,
    class_lines,
    grouped,
    instance_path,
    mlp_lines,
)
from agents.autopatch.patch_plan import Plan
from agents.autopatch.splice import end_of, insert_after, parse, replace_lines
from agents.conventions.edits import AnchorMissing

CROSS_ENTROPY = (
    "if cross_entropy:\n    from transformers.loss.loss_utils import nn\n\n"
    "    nn.functional.cross_entropy = liger_cross_entropy\n"
)


class Existing:
    """The function as it stands in monkey_patch.py. Made again after each edit, because lines move."""

    def __init__(self, text: str, function: str, path: str):
        self.text, self.path = text, path
        tree = parse(text, path)
        found = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function]
        if not found:
            raise AnchorMissing(path, f"function {function}")
        self.node = found[0]
        self.source = "\n".join(text.splitlines()[self.node.lineno - 1 : end_of(self.node)])

    def conditional(self, test: str) -> ast.If | None:
        """The first top-level `if <test>:` of the function."""
        return next(
            (n for n in self.node.body if isinstance(n, ast.If) and ast.unparse(n.test) == test), None
        )

    def again(self, text: str) -> Existing:
        return Existing(text, self.node.name, self.path)


def add_flag(
    text: str, flag: str, profile: ModelProfile, plan: Plan, layout: Layout, path: str
) -> tuple[str, list[str]]:
    """`flag` in both paths of the function, and what was changed, as sentences."""
    function = Existing(text, layout.registered[profile.model_type], path)
    done: list[str] = []
    if flag == "cross_entropy":
        return _live_cross_entropy(function, profile, done), done
    if flag not in {argument.arg for argument in function.node.args.args}:
        function = function.again(_add_parameter(function, flag))
        function = function.again(_document(function, flag))
        done.append(f"parameter `{flag}`, on by default")
    text = _add_class_path(function, flag, plan, layout, done)
    return _add_instance_path(function.again(text), flag, profile, plan, layout, done), done


def _add_parameter(function: Existing, flag: str) -> str:
    names = [a.arg for a in function.node.args.args]
    index = names.index("model") if "model" in names else len(names)
    before = function.node.args.args[index - 1]
    line = before.end_lineno or before.lineno
    indent = " " * before.col_offset
    return insert_after(function.text, line, f"{indent}{flag}: bool = True,\n")


def _document(function: Existing, flag: str) -> str:
    lines = function.text.splitlines()
    for number in range(function.node.lineno, end_of(function.node)):
        if re.match(r"\s+model \(PreTrainedModel\)", lines[number - 1]):
            entry = f"        {flag} (bool): {ARGUMENTS[flag]} Default is True.\n"
            return insert_after(function.text, number - 1, entry)
    return function.text


def _add_class_path(function: Existing, flag: str, plan: Plan, layout: Layout, done: list[str]) -> str:
    wanted = [
        line for name, line, _ in class_lines(plan, layout) if name == flag and line not in function.source
    ]
    if not wanted:
        return function.text
    done.append("class path: " + "; ".join(f"`{line}`" for line in wanted))
    conditional = function.conditional(flag)
    if conditional is not None:
        return insert_after(
            function.text, end_of(conditional), "".join(f"        {line}\n" for line in wanted)
        )
    anchor = function.conditional("cross_entropy") or function.conditional("fused_linear_cross_entropy")
    if anchor is None:
        raise AnchorMissing(function.path, f"`if cross_entropy:` in {function.node.name}")
    imports = _missing_imports(wanted, function, layout)
    block = f"    if {flag}:\n" + textwrap.indent("\n".join([*imports, *wanted]) + "\n", " " * 8)
    return insert_after(function.text, anchor.lineno - 1, block)


def _missing_imports(lines: list[str], function: Existing, layout: Layout) -> list[str]:
    """Imports, inside the block, of Liger classes that neither the file nor the function has."""
    names = sorted({n for line in lines for n in re.findall(r"\bLiger\w+", line)})
    missing = [n for n in names if n not in layout.patch_names and f"import {n}" not in function.source]
    return [*(f"from {layout.classes[n]} import {n}" for n in missing), *([""] if missing else [])]


def _add_instance_path(
    function: Existing, flag: str, profile: ModelProfile, plan: Plan, layout: Layout, done: list[str]
) -> str:
    at_base = _absent(grouped(plan, layout, {"base"}, "base_model").get(flag, ""), function)
    layers = grouped(plan, layout, {"layer", "attention", "other"}, "decoder_layer").get(flag, "")
    at_layers = _absent(mlp_lines(plan, layout).get(flag, "") + layers, function)
    if not at_base and not at_layers:
        return function.text
    done.append(
        "instance path: " + "; ".join(f"`{line.strip()}`" for line in (at_base + at_layers).splitlines())
    )
    block = next((n for n in function.node.body if isinstance(n, ast.If) and _of_instances(n)), None)
    if block is None:
        whole = instance_path(profile, plan, layout, only={flag}).replace("else:", "if model is not None:", 1)
        if profile.base_class not in function.source:
            whole = whole.replace(f"base_model: {profile.base_class} =", "base_model =", 1)
        return insert_after(function.text, end_of(function.node), "\n" + textwrap.indent(whole, "    "))
    text = function.text
    loop = next(
        (n for n in ast.walk(block) if isinstance(n, ast.For) and "layer" in ast.unparse(n.target)), None
    )
    if at_layers:
        if loop is None:
            raise AnchorMissing(function.path, f"loop over the layers in {function.node.name}")
        name = ast.unparse(loop.target)
        lines = textwrap.indent(
            f"if {flag}:\n" + textwrap.indent(at_layers, "    "), " " * loop.body[0].col_offset
        )
        text = insert_after(text, end_of(loop), lines.replace("decoder_layer.", f"{name}."))
    if at_base:
        lines = f"if {flag}:\n" + textwrap.indent(at_base, "    ")
        line = (loop.lineno - 1) if loop is not None else end_of(block)
        text = insert_after(text, line, textwrap.indent(lines, " " * block.body[0].col_offset))
    return text


def _of_instances(node: ast.If) -> bool:
    """`if model is not None:` at the top of the function, apart from the one inside the fused loss."""
    return ast.unparse(node.test) == "model is not None"


def _absent(lines: str, function: Existing) -> str:
    """Those lines whose module is not patched in the function yet; a line under a condition goes with it."""
    kept: list[str] = []
    pending: list[str] = []
    for line in lines.splitlines():
        if line.startswith("if "):
            pending = [line]
            continue
        target = re.search(r"(?:base_model|\w*layer)(\.[\w.]+)", line)
        place = target[1] if target else line
        if not re.search(re.escape(place) + r"(?![\w.])", function.source):
            kept += [*pending, line]
        pending = []
    return "".join(f"{line}\n" for line in kept)


def _live_cross_entropy(function: Existing, profile: ModelProfile, done: list[str]) -> str:
    """An assignment of CrossEntropyLoss to a module that has none patches nothing: the loss is transformers' own function."""
    conditional = function.conditional("cross_entropy")
    if conditional is None or "CrossEntropyLoss(" in profile.forward.source:
        return function.text
    if "nn.functional.cross_entropy" in ast.unparse(conditional):
        return function.text
    done.append(
        "`cross_entropy` replaces the function that transformers calls, where it assigned a name that is not there"
    )
    return replace_lines(
        function.text, conditional.lineno, end_of(conditional), textwrap.indent(CROSS_ENTROPY, "    ")
    )
