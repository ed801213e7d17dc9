"""Edits of one convergence test file: imports, guard, mini model, parameters; conditionals of run_mini_model. Pure."""

from __future__ import annotations

import ast

from agents.autopatch.model_profile import ModelProfile
from agents.autopatch.patch_plan import Plan
from agents.autopatch.splice import end_of, insert_after, parse
from agents.conventions.edits import AnchorMissing, add_import
from kernels.syntax import syntax_tree

SETUPS = "MINI_MODEL_SETUPS"
# whose tolerances a new model starts from: the first of these that the file tests
MODELS_LIKE = {
    "moe": ("mini_qwen3_moe", "mini_mixtral", "mini_llama3"),
    "gemma": ("mini_gemma2", "mini_gemma1", "mini_llama3"),
    "dense": ("mini_ministral", "mini_qwen2", "mini_llama3"),
}


def add_mini_model(text: str, profile: ModelProfile, plan: Plan, path: str, line_length: int) -> str:
    """The five edits of a convergence file. Raises AnchorMissing when one has no place."""
    revert = plan.function.replace("apply_", "revert_")
    text = add_import(text, "liger_kernel.transformers", plan.function, path=path, line_length=line_length)
    text = _add_test_import(text, revert, path)
    text = _add_guard(text, profile, path)
    text = _add_setup(text, profile, plan, revert, path)
    text = _add_parameters(text, profile, plan, path)
    return _add_conditionals(text, profile, plan)


def available(profile: ModelProfile) -> str:
    return f"{profile.identifier.upper()}_AVAILABLE"


def _add_test_import(text: str, name: str, path: str) -> str:
    return add_import(text, "test.utils", name, path=path)


def _add_guard(text: str, profile: ModelProfile, path: str) -> str:
    tree = parse(text, path)
    setups = next((n.lineno for n in tree.body if _assigns(n, SETUPS)), None)
    if setups is None:
        raise AnchorMissing(path, f"dictionary named {SETUPS}")
    guards = [n for n in tree.body if isinstance(n, ast.Try) and n.lineno < setups]
    if not guards:
        raise AnchorMissing(path, "guarded import of a model")
    code = (
        f"\ntry:\n    from transformers import {profile.config_class}\n"
        f"    from {profile.modeling_module} import {profile.causal_class}\n\n"
        f"    {available(profile)} = True\nexcept ImportError:\n    {available(profile)} = False\n"
    )
    return insert_after(text, end_of(guards[-1]), code)


def _assigns(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name


def _add_setup(text: str, profile: ModelProfile, plan: Plan, revert: str, path: str) -> str:
    tree = parse(text, path)
    places = [
        node
        for node in tree.body
        if _assigns(node, SETUPS)
        or (isinstance(node, ast.If) and any(SETUPS in ast.unparse(s) for s in node.body))
    ]
    if not places:
        raise AnchorMissing(path, f"dictionary named {SETUPS}")
    config = "".join(
        f"            {name}={_literal(value)},\n" for name, value in sorted(profile.mini_config.items())
    )
    code = (
        f'\nif {available(profile)}:\n    {SETUPS}["mini_{profile.identifier}"] = MiniModelConfig(\n'
        f"        liger_kernel_patch_func={plan.function},\n"
        f"        liger_kernel_patch_revert_func={revert},\n"
        f"        model_class={profile.causal_class},\n"
        f"        mini_model_config={profile.config_class}(\n{config}        ),\n    )\n"
    )
    return insert_after(text, end_of(places[-1]), code)


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _add_parameters(text: str, profile: ModelProfile, plan: Plan, path: str) -> str:
    tree = parse(text, path)
    cases = _cases(tree)
    if cases is None or not cases.elts:
        raise AnchorMissing(path, "pytest.mark.parametrize over model_name")
    numbers = _numbers(text, cases, plan)
    bf16 = "/bf16/" in path or "bfloat16" in numbers[2]
    marks = (
        '                pytest.mark.skipif(not supports_bfloat16(), reason="bfloat16 not supported on this GPU"),\n'
        if bf16 and "supports_bfloat16" in text
        else ""
    )
    stem = profile.causal_class.removesuffix("ForCausalLM").removesuffix("ForConditionalGeneration")
    code = (
        f'        pytest.param(\n            "mini_{profile.identifier}",\n'
        + "".join(f"            {number},\n" for number in numbers)
        + f"            marks=[\n{marks}                pytest.mark.skipif(\n"
        f"                    not {available(profile)},\n"
        f'                    reason="{stem} not available in this version of transformers",\n'
        "                ),\n            ],\n        ),\n"
    )
    return insert_after(text, _after_last(cases), code)


def _after_last(cases: ast.List) -> int:
    """The last line before the closing bracket, so that comments behind the last case stay with it."""
    return (cases.end_lineno or cases.lineno) - 1


def _cases(tree: ast.Module) -> ast.List | None:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "pytest.mark.parametrize"
            and isinstance(node.args[0], ast.Constant)
            and "model_name" in str(node.args[0].value)
            and isinstance(node.args[1], ast.List)
        ):
            return node.args[1]
    return None


def _numbers(text: str, cases: ast.List, plan: Plan) -> list[str]:
    """Steps, learning rate, dtype and tolerances of the nearest relative that the file tests."""
    known: dict[str, list[ast.expr]] = {}
    for case in cases.elts:
        values = case.args if isinstance(case, ast.Call) else case.elts if isinstance(case, ast.Tuple) else []
        if values and isinstance(values[0], ast.Constant):
            known[str(values[0].value)] = values[1:]
    kind = (
        "moe" if any(m.role == "experts" for m in plan.mlps) else "gemma" if plan.flag("geglu") else "dense"
    )
    chosen = next((known[name] for name in MODELS_LIKE[kind] if name in known), None)
    lines = text.splitlines()
    # as written, because unparsing turns 1e-5 into 1e-05
    return [
        lines[v.lineno - 1][v.col_offset : v.end_col_offset] for v in chosen or next(iter(known.values()))
    ]


def _add_conditionals(text: str, profile: ModelProfile, plan: Plan) -> str:
    """run_mini_model passes rope and swiglu to every model; where this one can't, its name joins the condition."""
    for name in ("rope", "swiglu"):
        flag = plan.flag(name)
        if flag is None or not flag.why_not:
            continue
        for node in ast.walk(syntax_tree(text)):
            if isinstance(node, ast.If) and [ast.unparse(s) for s in node.body] == [
                f"kwargs['{name}'] = False"
            ]:
                lines = text.splitlines(keepends=True)
                row, column = (node.test.end_lineno or node.lineno) - 1, node.test.end_col_offset or 0
                addition = f' or model_name == "mini_{profile.identifier}"'
                lines[row] = lines[row][:column] + addition + lines[row][column:]
                text = "".join(lines)
                break
    return text
