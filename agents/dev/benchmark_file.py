"""The generated benchmark script, in the checkout's generation of the benchmark API. Pure."""

from __future__ import annotations

from agents.conventions import Conventions
from agents.dev.reference_in_test import RenamedReference
from agents.dev.signature import Signature
from agents.dev.skeletons import render, shared_blanks
from agents.profiles import KernelProfile

_WIDTHS = (
    "hidden_size",
    "vocab_size",
    "intermediate_size",
    "n_cols",
    "H",
    "V",
    "N",
)  # x of a sweep over columns


def benchmark_file(
    profile: KernelProfile, signature: Signature, conventions: Conventions, reference: RenamedReference
) -> str:
    """benchmark/scripts/benchmark_{op}.py in the checkout's generation of the benchmark API."""
    fixed = {name: value for name, value in profile.benchmark_fixed_config.items() if isinstance(value, int)}
    width_key = next(
        (key for key in ("vocab_size", "intermediate_size") if key in (*fixed, profile.benchmark_variable)),
        "hidden_size",
    )
    sweeps_width = profile.benchmark_variable in _WIDTHS
    fixed_value = next(iter(fixed.values()), 4096)
    return render(
        f"benchmark_{conventions.benchmark_api}.py.jinja",
        **shared_blanks(profile, signature, conventions, reference),
        bytes_per_token_sweep=conventions.bytes_per_token_sweep,
        width_key=width_key,
        sweeps_width=sweeps_width,
        fixed_code=f'"{"BT" if sweeps_width else width_key}": {fixed_value}',
        x_name=width_key if sweeps_width else "BT",
        x_label=width_key.replace("_", " ") if sweeps_width else "total tokens",
        x_values=repr(list(profile.benchmark_x_values_suggestion)),
        layer_reference_arguments=[
            f"liger_layer.{tensor.name}" if tensor.learnable else tensor.name for tensor in signature.tensors
        ],
    )
