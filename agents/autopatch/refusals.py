"""Why a model can't be profiled, in one sentence each, with what to type next. Pure."""

from __future__ import annotations

from rapidfuzz import fuzz, process

from agents.autopatch.facts import InspectionRefusal
from agents.dev.refused import Refused

NEAREST = 4
LEAST_ALIKE = 60.0  # below it, a name is no misspelling of another


def refused(found: InspectionRefusal, asked: str, transformers: str = "") -> Refused:
    """The answer for a person. `asked`: what they named; `transformers`: the version that was looked at."""
    where = f"transformers {transformers}" if transformers else "the installed transformers"
    detail = found.detail
    match found.code:
        case "unknown_model":
            names = nearest(asked, found.known)
            return Refused(
                reason=f"{where} has no model called `{_short(asked)}`.",
                needed="A model type (`nemotron`), a class (`NemotronForCausalLM`), or a newer transformers on the runner if the model is younger than it.",
                suggestions=tuple(f"/liger autopatch {name}" for name in names),
            )
        case "remote_code":
            return Refused(
                reason=f"`{_short(detail)}` has its code in its Hub repository (auto_map), not in {where}: remote code is never run.",
                needed="A model whose class is part of transformers.",
            )
        case "no_model_type":
            return Refused(
                reason="The config.json names no model_type.", needed="The whole config.json of the model."
            )
        case "encoder_only":
            return Refused(
                reason=f"`{_short(asked)}` is an encoder: its causal class is the same encoder with another mask, and no fused linear cross entropy fits it.",
                needed="A decoder-only causal language model.",
            )
        case "encoder_decoder":
            return Refused(
                reason=f"`{_short(asked)}` is an encoder-decoder, which no file of a model patch has a place for.",
                needed="A decoder-only causal language model.",
            )
        case "no_causal_class":
            return Refused(
                reason=f"{where} has no causal language model for `{_short(asked)}`.",
                needed="A model with a ForCausalLM class.",
            )
        case "another_models_class":
            model_type, _, rest = detail.partition(" ")
            cls, _, folder = rest.partition(" ")
            return Refused(
                reason=f"`{_short(model_type)}` has no modeling file: {where} builds it with {cls} of `{folder}`, which is patched under that name.",
                needed=f"The model type `{folder}`.",
                suggestions=(f"/liger autopatch {folder}",),
            )
        case "import_failed":
            return Refused(
                reason=f"The modeling file of `{_short(asked)}` can't be imported: {detail[:300]}.",
                needed="What it imports, on the runner.",
            )
        case "checkout_import_failed":
            return Refused(
                reason=f"The checkout can't be imported with {where}: {detail[:300]}.",
                needed="A checkout and a transformers that belong together (the checkout's pin says which).",
            )
        case "config_failed":
            return Refused(
                reason=f"The config of `{_short(asked)}` can't be built: {detail[:300]}.",
                needed="Its config.json, as a ```json block below the command.",
            )
        case "not_tiny" | "no_layers":
            return Refused(
                reason=f"No small model of `{_short(asked)}` could be made to probe: {detail[:300]}.",
                needed="A config.json whose model runs on token ids alone, as a ```json block below the command.",
            )
        case "timeout" | "crashed":
            return Refused(
                reason=f"Probing `{_short(asked)}` did not end well ({detail[:200]}).",
                needed="A model that computes one step on a CPU at small sizes.",
            )
        case _:
            return Refused(
                reason=f"Probing `{_short(asked)}` failed: {detail[:300]}.",
                needed="A report of this as an issue of liger-bot.",
            )


def already_there(model_type: str, function_file: str = "") -> Refused:
    """The refusal for a model that the checkout patches already."""
    return Refused(
        reason=f"This repository already patches `{model_type}`.",
        where=function_file or None,
        needed="What to add to it.",
        suggestions=(
            f"/liger autopatch {model_type} --add relu_squared",
            f"/liger autopatch {model_type} --add rms_norm",
        ),
    )


def another_models_decoder(model_type: str, layer: str, file: str) -> Refused:
    """The refusal for a model whose text decoder is built from another model's file."""
    owner = file.split("/")[-2]
    return Refused(
        reason=f"The decoder of `{model_type}` is another model's: {layer} of {file}, which is patched as `{owner}`.",
        where=file,
        needed=f"The model type `{owner}`.",
        suggestions=(f"/liger autopatch {owner}",),
    )


def another_head(model_type: str, head: str, distance: float) -> Refused:
    """The refusal for a head that computes more than a linear layer: the fused loss would drop the rest."""
    return Refused(
        reason=f"The head of `{model_type}` is {head}, not a linear layer: Liger's fused loss lies {distance:.2g} from the model's own.",
        needed="A head that is one matrix, with a bias at most.",
    )


def too_old(installed: str, needed: str) -> Refused:
    """The refusal when the runner's transformers is older than what the checkout asks for."""
    return Refused(
        reason=f"The runner has transformers {installed}, and this repository needs {needed}.",
        needed=f"A runner with transformers {needed}.",
    )


def nearest(asked: str, known: list[str]) -> list[str]:
    """Known names that `asked` may have meant, best first."""
    found = process.extract(
        asked.lower(), known, scorer=fuzz.ratio, processor=str.lower, limit=NEAREST, score_cutoff=LEAST_ALIKE
    )
    return [name for name, _, _ in found]


def _short(text: str) -> str:
    return text.replace("`", "'")[:80]
