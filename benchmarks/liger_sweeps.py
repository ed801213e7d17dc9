"""The shapes at which Liger-Kernel's own benchmark scripts run their kernels, for a direct comparison.

From its benchmark/scripts (commit ead96b618e): the default model is Llama 3 8B, and the number of tokens doubles from 1024.
Each point is rows x columns; the losses' columns are a vocabulary, the gated activations' an intermediate size.
"""

from __future__ import annotations

TOKENS = (1024, 2048, 4096, 8192, 16384)
HIDDEN, INTERMEDIATE, VOCABULARY = 4096, 14336, 128256
# The largest vocabulary points hold several tensors of tokens x vocabulary.
MOST_LOSS_TOKENS = 4096

COLUMNS = {
    **dict.fromkeys(
        ("rms_norm", "layer_norm", "fused_add_rms_norm", "dyt", "softmax", "relu_squared"),
        HIDDEN,
    ),
    **dict.fromkeys(("swiglu", "geglu"), INTERMEDIATE),
    **dict.fromkeys(("cross_entropy", "kl_div", "jsd", "tvd"), VOCABULARY),
}


def sweep(op: str) -> list[tuple[int, int]]:
    """(rows, columns) of Liger's sweep over tokens for one op; empty when Liger has no script for it."""
    columns = COLUMNS.get(op)
    if columns is None:
        return []
    most = MOST_LOSS_TOKENS if columns == VOCABULARY else TOKENS[-1]
    return [(tokens, columns) for tokens in TOKENS if tokens <= most]
