"""The model's row in README's table of patches. Pure."""

from __future__ import annotations

import re

from agents.autopatch.model_profile import ModelProfile
from agents.autopatch.patch_plan import Plan
from agents.autopatch.splice import insert_after, place, relative

ROW = re.compile(r"^\|\s*([^|]+?)\s*\|\s*`liger_kernel\.transformers\.apply_liger_kernel_to_(\w+)`\s*\|")


def add_row(text: str, profile: ModelProfile, plan: Plan) -> str | None:
    """The README with the row, or None when it has no such table or has the row already."""
    rows = [(n, m[1], m[2]) for n, line in enumerate(text.splitlines(), start=1) if (m := ROW.match(line))]
    if not rows or profile.identifier in {model for _, _, model in rows}:
        return None
    models = [model for _, _, model in rows]
    family = relative(models, profile.identifier)
    index = models.index(family) + 1 if family else place(models, profile.identifier)
    line = rows[index - 1][0] if index else rows[0][0] - 1
    name = profile.causal_class.removesuffix("ForCausalLM").removesuffix("ForConditionalGeneration")
    row = f"| {name:<11} | `liger_kernel.transformers.{plan.function}`   | {', '.join(plan.operations())} |\n"
    return insert_after(text, line, row)
