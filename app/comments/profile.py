"""A profile as people read it in a comment: a table for ten seconds, the evidence and the whole of it folded. Pure."""

from __future__ import annotations

import json

import yaml

from agents.markdown import code, cut, fence, plain, table
from agents.profiles import Decision, KernelProfile, Roofline

MAX_YAML_CHARS = 30_000
MAX_DECISIONS = 40


def profile_markdown(profile: KernelProfile, page_url: str) -> str:
    """The profile for a comment; page_url is where the whole of it can be read when it doesn't fit."""
    digest = profile.sha256()
    parts = [
        f"#### Profile of {code(profile.operation_name)} · hash `{digest[:12]}`",
        _summary(profile),
        _questions(profile),
        folded(f"Why: {len(profile.decisions)} decisions and their evidence", _decisions(profile.decisions)),
        folded("Reference: the plain PyTorch that the kernel must equal", fence(profile.op.source, "python")),
        folded("The whole profile (YAML)", fence(_yaml(profile, digest, page_url), "yaml")),
    ]
    return "\n\n".join(part for part in parts if part)


def folded(summary: str, markdown: str) -> str:
    """A section that is closed until someone opens it. `summary` is ours."""
    return f"<details><summary>{summary}</summary>\n\n{markdown}\n\n</details>"


def _summary(profile: KernelProfile) -> str:
    names = [profile.function_class_name, profile.module_class_name, profile.functional_name]
    rows = [
        ["computes", code(profile.forward_computation)],
        [
            "gradients",
            "<br>".join(code(f"d{name} = {formula}") for name, formula in profile.gradient_formulas.items())
            or "none",
        ],
        ["inputs", ", ".join(code(f"{one.name}: {one.shape} {one.dtype}") for one in profile.forward_inputs)],
        ["names", ", ".join(code(name) for name in names)],
        [
            "kind",
            plain(
                f"tier {profile.tier}, {profile.tier_description}; nearest kernel: {profile.closest_existing_kernel}"
            ),
        ],
        [
            "kept for the backward",
            ", ".join(code(one) for one in profile.backward_saved_tensors) or "nothing",
        ],
        ["in fp32", ", ".join(code(one) for one in profile.precision_sensitive_ops) or "nothing needs it"],
        ["layout", plain(f"{profile.grid_description}; block size: {profile.block_size_source}")],
        *[[f"predicted at {plain(one.shape)}", _prediction(one)] for one in profile.roofline[:3]],
        [
            "tolerances",
            "; ".join(plain(f"{dtype}: {_pairs(limits)}") for dtype, limits in profile.tolerances.items()),
        ],
        ["files", "<br>".join(f"{one.action} {code(one.path)}" for one in profile.files)],
        ["risks", "<br>".join(plain(one) for one in profile.risks) or "none seen"],
        ["reference from", plain(profile.source)],
    ]
    return table(["", "decision"], rows)


def _prediction(one: Roofline) -> str:
    return (
        f"at most {one.predicted_forward_speedup:.2f}x forward, {one.predicted_backward_speedup:.2f}x backward over eager; "
        f"floor {one.forward_floor_ms:.3f} ms and {one.backward_floor_ms:.3f} ms; "
        f"{one.predicted_memory_saving_pct:.1f}% less peak memory (bytes moved, not measured)"
    )


def _pairs(values: dict[str, float]) -> str:
    return ", ".join(f"{key} {value:g}" for key, value in values.items())


def _questions(profile: KernelProfile) -> str:
    if not profile.questions:
        return ""
    return "**To confirm**\n\n" + "\n".join(
        f"{number}. {plain(one)}" for number, one in enumerate(profile.questions, 1)
    )


def _decisions(decisions: list[Decision]) -> str:
    rows = []
    for one in decisions[:MAX_DECISIONS]:
        evidence = "<br>".join(
            plain(f"{item.kind}: {item.text}") + (f" ({code(item.where)})" if item.where else "")
            for item in one.evidence[:4]
        )
        rows.append([code(one.name), plain(one.value), plain(one.why), evidence])
    text = table(["decision", "value", "why", "evidence"], rows)
    return cut(text, 20_000, "| … | | | the rest is in the YAML below |")


def _yaml(profile: KernelProfile, digest: str, page_url: str) -> str:
    body = profile.model_dump(mode="json", exclude={"traced"})
    body["traced"] = (
        f"omitted: machine-made, {len(json.dumps(profile.traced)):,} characters; covered by the hash"
    )
    body["sha256"] = digest
    text = yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=110)
    return cut(text, MAX_YAML_CHARS, f"# … cut; the whole profile: {page_url}")
