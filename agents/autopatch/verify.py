"""Verify: the jobs of a model patch. Pure; they are run elsewhere, and their reports are judged as any other's."""

from __future__ import annotations

from agents.autopatch.model_candidate import ModelCandidate
from agents.autopatch.model_profile import ModelProfile
from runners.protocol import Gate, StylePayload, VerifyModelPayload


def plan(
    profile: ModelProfile, candidate: ModelCandidate, checkout: str, sha: str, *, applied: bool = True
) -> dict[Gate, StylePayload | VerifyModelPayload]:
    """One job payload a gate, in the order they run. `applied`: the checkout has the candidate's files already."""
    judged = {path: text for path, text in candidate.files.items() if path not in candidate.unclean_before}
    return {
        Gate.style: StylePayload(checkout=checkout, files=judged, ruff=candidate.ruff),
        Gate.correctness: VerifyModelPayload(
            checkout=checkout,
            sha=sha,
            files={} if applied else candidate.files,
            baseline=candidate.originals,
            package=candidate.imports[0].split(".", 1)[0],
            function=candidate.function,
            model_type=profile.identifier,
            modeling_module=profile.modeling_module,
            causal_class=profile.causal_class,
            config_class=profile.config_class,
            tiny_config=profile.tiny_config,
            flags=candidate.flags,
            imports=candidate.imports,
            instance_tests=candidate.tests,
            convergence=candidate.convergence,
        ),
    }
