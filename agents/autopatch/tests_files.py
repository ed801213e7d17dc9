"""Edits of the checkout's tests: the instance test, the revert helper. Pure."""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import replace

from agents.autopatch.layout import Layout
from agents.autopatch.model_profile import MlpClass, ModelProfile, NormUse
from agents.autopatch.patch_function import lce_alias
from agents.autopatch.patch_plan import NormPatch, Plan, computing_class, mlp_flag
from agents.autopatch.places import IS_THERE, below, below_base, decoders_of, where_held, where_present
from agents.autopatch.splice import end_of, functions, insert_after, parse, place, relative
from agents.autopatch.vision import at_places
from agents.conventions.edits import AnchorMissing

INSTANCE = "test_apply_liger_kernel_to_instance_for_"


def add_instance_test(text: str, profile: ModelProfile, plan: Plan, layout: Layout, path: str) -> str:
    """is_{m}_available, the import in test_import_from_root, and the instance test."""
    text = _add_availability(text, profile, path)
    text = _add_root_import(text, plan)
    tree = parse(text, path)
    tests = {
        node.name.removeprefix(INSTANCE): node for node in functions(tree, lambda n: n.startswith(INSTANCE))
    }
    if not tests:
        raise AnchorMissing(path, f"test named {INSTANCE}*")
    family = relative(list(tests), profile.identifier)
    anchor = tests[family] if family else list(tests.values())[-1]
    code = instance_test(
        profile, plan, layout, "torch_dtype" if "torch_dtype=torch.bfloat16" in text else "dtype"
    )
    return insert_after(text, end_of(anchor), "\n\n" + code)


def instance_test(profile: ModelProfile, plan: Plan, layout: Layout, dtype_argument: str = "dtype") -> str:
    """The test's source: not patched before, patched after, and printable."""
    m = profile.identifier
    before, after = (_checks(profile, plan, layout, sign) for sign in ("!=", "=="))
    arguments = {dtype_argument: "torch.bfloat16"} | {k: _literal(v) for k, v in profile.tiny_config.items()}
    config = "".join(f"            {name}={value},\n" for name, value in arguments.items())
    imports = f"        from {layout.module('model')}.{m} import lce_forward as {lce_alias(profile)}\n"
    compared = {(patch.module, patch.liger_class) for patch in plan.norms if patch.flag == "layer_norm"}
    compared |= {
        (layout.module("rms_norm"), "LigerRMSNorm") for patch in plan.norms if patch.flag == "rms_norm"
    }
    ran = {computing_class(mlp) for mlp in plan.mlps if not mlp.through_act2fn}
    compared |= {(layout.classes[name], name) for name in ran}
    if plan.on("relu_squared"):
        compared.add((layout.classes["LigerReLUSquared"], "LigerReLUSquared"))
    imports += "".join(f"        from {module} import {name}\n" for module, name in sorted(compared))
    return f'''\
@pytest.mark.skipif(not is_{m}_available(), reason="{m} module not available")
def {INSTANCE}{m}():
    # Ensure any monkey patching is cleaned up for subsequent tests
    with patch("{profile.modeling_module}"):
{imports}
        # Instantiate a dummy model
        config = transformers.{profile.config_class}(
{config}        )
        dummy_model_instance = {_instance(profile)}

        # Check that model instance variables are not yet patched with Liger modules
        assert inspect.getsource(dummy_model_instance.forward) != inspect.getsource({lce_alias(profile)})
{before}
        # Test applying kernels to the model instance
        _apply_liger_kernel_to_instance(model=dummy_model_instance)

        # Check that the model's instance variables were correctly patched with Liger modules
        assert inspect.getsource(dummy_model_instance.forward) == inspect.getsource({lce_alias(profile)})
{after}
        try:
            print(dummy_model_instance)
        except Exception as e:
            pytest.fail(f"An exception occured in extra_expr: {{type(e).__name__}} - {{e}}")
'''


def _instance(profile: ModelProfile) -> str:
    if profile.causal_class.endswith("ForCausalLM") and profile.by_auto_class:
        return "AutoModelForCausalLM.from_config(config)"
    return f"transformers.{profile.causal_class}._from_config(config)"


def layer_checks(profile: ModelProfile, plan: Plan, layout: Layout, sign: str, flag: str) -> tuple[str, str]:
    """(assertions of one flag, the imports that they need), for a test that exists already."""
    norms = tuple(norm for norm in plan.norms if norm.flag == flag)
    mlps = tuple(mlp for mlp in plan.mlps if mlp_flag(mlp) == flag)
    only = replace(plan, norms=norms, mlps=mlps)
    names = {computing_class(mlp) for mlp in mlps if not mlp.through_act2fn}
    names |= {"LigerReLUSquared"} if any(mlp.through_act2fn for mlp in mlps) else set()
    names |= {"LigerLayerNorm" if norm.flag == "layer_norm" else "LigerRMSNorm" for norm in norms}
    imports = "".join(f"        from {layout.classes[name]} import {name}\n" for name in sorted(names))
    return _checks(profile, only, layout, sign), imports


def _checks(profile: ModelProfile, plan: Plan, layout: Layout, sign: str) -> str:
    vision = [(place, _same_source("{}", patch, sign)) for patch in plan.norms for place in patch.places]
    return _text_checks(profile, plan, layout, sign) + at_places(vision, "dummy_model_instance", 8)


def _text_checks(profile: ModelProfile, plan: Plan, layout: Layout, sign: str) -> str:
    """The assertions about the text decoder, or decoders."""
    if profile.decoder_twins:
        paths = [f"dummy_model_instance.base_model{below_base(path)}" for path in decoders_of(profile)]
        checks = _decoder_checks(profile, plan, layout, sign, "decoder")
        loop = f"        for decoder in ({', '.join(paths)}):\n"
        return loop + textwrap.indent(checks, "    ") if checks else ""
    decoder = f"dummy_model_instance.base_model{below_base(profile.decoder_path)}"
    return _decoder_checks(profile, plan, layout, sign, decoder)


def _decoder_checks(profile: ModelProfile, plan: Plan, layout: Layout, sign: str, decoder: str) -> str:
    """The assertions about the modules of one decoder."""
    base, layered = "", ""
    for norm in plan.norms:
        for use in norm.uses:
            if use.owner == "base":
                base += _compare(decoder, use, norm, plan, sign, 8)
    for mlp in sorted(plan.mlps, key=lambda m: m.role != "experts"):
        layered += _mlp_check(mlp, plan, layout, sign)
    for norm in plan.norms:
        for use in norm.uses:
            if use.owner != "base":
                layered += _compare("layer", use, norm, plan, sign, 12)
    if layered:
        layered = f"        for layer in {decoder}.{profile.layers_attribute}:\n" + layered
    return base + layered


def _compare(base: str, use: NormUse, norm: NormPatch, plan: Plan, sign: str, indent: int) -> str:
    line = _same_source(below(base, use.attribute), norm, sign) + "\n"
    return textwrap.indent(where_present(base, use, line, plan.norm_uses, IS_THERE), " " * indent)


def _same_source(place: str, norm: NormPatch, sign: str) -> str:
    liger = "LigerLayerNorm" if norm.flag == "layer_norm" else "LigerRMSNorm"
    return f"assert inspect.getsource({place}.forward) {sign} inspect.getsource({liger}.forward)"


def _mlp_check(mlp: MlpClass, plan: Plan, layout: Layout, sign: str) -> str:
    place = below("layer", mlp.attribute)
    if mlp.through_act2fn:
        negation = "not " if sign == "!=" else ""
        line = f"assert {negation}isinstance({place}.{mlp.activation_attribute}, LigerReLUSquared)\n"
    else:
        line = f"assert inspect.getsource({place}.forward) {sign} inspect.getsource({computing_class(mlp)}.forward)\n"
    return textwrap.indent(where_held("layer", mlp, line, plan.mixed, layout), " " * 12)


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _add_availability(text: str, profile: ModelProfile, path: str) -> str:
    tree = parse(text, path)
    found = functions(tree, lambda n: re.fullmatch(r"is_\w+_available", n) is not None)
    name = f"is_{profile.identifier}_available"
    if name in {node.name for node in found}:
        return text
    package = profile.modeling_module.rsplit(".", 1)[0]
    code = (
        f"def {name}():\n    try:\n        import {package}  # noqa: F401\n\n        return True\n"
        "    except ImportError:\n        return False\n"
    )
    if not found:
        raise AnchorMissing(path, "function named is_*_available")
    return insert_after(text, end_of(found[-1]), "\n\n" + code)


def _add_root_import(text: str, plan: Plan) -> str:
    """Into test_import_from_root, at its sorted place; a checkout without that test is left alone."""
    lines = text.splitlines()
    pattern = re.compile(
        r"^        from liger_kernel\.transformers import (apply_liger_kernel_to_\w+)  # noqa: F401$"
    )
    found = [
        (number, match[1]) for number, line in enumerate(lines, start=1) if (match := pattern.match(line))
    ]
    if not found or plan.function in {name for _, name in found}:
        return text
    index = place([name for _, name in found], plan.function)
    line = found[index - 1][0] if index else found[0][0] - 1
    return insert_after(
        text, line, f"        from liger_kernel.transformers import {plan.function}  # noqa: F401\n"
    )


def add_revert_helper(text: str, profile: ModelProfile, plan: Plan, path: str) -> str:
    """revert_liger_kernel_to_{m} in test/utils.py: reload the modeling module, and undo what a reload can't."""
    prefix = "revert_liger_kernel_to_"
    found = functions(parse(text, path), lambda n: n.startswith(prefix))
    if not found:
        raise AnchorMissing(path, f"function named {prefix}*")
    by_name = {node.name.removeprefix(prefix): node for node in found}
    if profile.identifier in by_name:
        return text
    family = relative(list(by_name), profile.identifier)
    package, modeling = profile.modeling_module.rsplit(".", 1)
    stem = profile.causal_class.removesuffix("ForCausalLM").removesuffix("ForConditionalGeneration")
    keys = sorted({mlp.through_act2fn for mlp in plan.mlps if mlp.through_act2fn})
    first = "    from transformers.activations import ACT2CLS\n" if keys else ""
    restore = "".join(
        f'    modeling.ACT2FN["{key}"] = ACT2CLS["{key}"]\n'.replace("modeling", modeling) for key in keys
    )
    code = (
        f"def {prefix}{profile.identifier}(model_config: MiniModelConfig):\n"
        f'    """\n    Revert all Liger kernel patches applied to {stem}.\n    """\n\n'
        f"{first}    from {package} import {modeling}\n\n{restore}"
        f"    importlib.reload({modeling})\n"
        f"    model_config.model_class = {modeling}.{profile.causal_class}\n"
        '    print("Liger kernel patches have been reverted.")\n'
    )
    anchor = by_name[family] if family else found[-1]
    return insert_after(text, end_of(anchor), "\n\n" + code)


def has_function(text: str | None, name: str, path: str) -> bool:
    return text is not None and any(
        isinstance(node, ast.FunctionDef) and node.name == name for node in parse(text, path).body
    )
