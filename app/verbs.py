"""The verbs of `/liger`, how each is written, and who may say it. Pure data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verb(StrEnum):
    """What may follow `/liger`."""

    dev = "dev"
    autopatch = "autopatch"
    perf = "perf"
    approve = "approve"
    revise = "revise"
    reject = "reject"
    retry = "retry"
    cancel = "cancel"
    status = "status"
    help = "help"


@dataclass(frozen=True)
class Usage:
    """How one verb is written and what it does; `help` and docs/commands.md show it."""

    form: str
    does: str
    example: str
    writers_only: bool = True


USAGE: dict[Verb, Usage] = {
    Verb.dev: Usage(
        "/liger dev <op>",
        "derive a kernel for an op: a known name, an expression, package.module:Name, a GitHub URL with line numbers, or a ```python block below the command",
        "/liger dev relu2",
    ),
    Verb.autopatch: Usage(
        "/liger autopatch <model_type | ForCausalLM class> [--add flag] [--refresh]",
        "patch a model of transformers; with a ```json block below: the model of that config.json; `--add` and `--refresh` change a patch that is there",
        "/liger autopatch qwen3",
    ),
    Verb.perf: Usage(
        '/liger perf <kernel> [--goal speed|memory|balanced] [--scope forward|backward|full] [--max-variants 8] [--target "…"] [--auto]',
        "make an existing kernel faster",
        "/liger perf rms_norm --goal speed",
    ),
    Verb.approve: Usage(
        "/liger approve [profile hash]",
        "approve the profile; the same as reacting 👍 to it",
        "/liger approve",
    ),
    Verb.revise: Usage(
        "/liger revise key=value…",
        "change decisions of the profile; it is checked again and shown again",
        "/liger revise operation_name=squared_relu",
    ),
    Verb.reject: Usage("/liger reject [reason]", "turn the profile down", "/liger reject not needed"),
    Verb.retry: Usage("/liger retry", "try again where the request stopped", "/liger retry"),
    Verb.cancel: Usage("/liger cancel", "stop the request", "/liger cancel"),
    Verb.status: Usage("/liger status", "say where the request stands", "/liger status", writers_only=False),
    Verb.help: Usage("/liger help [verb]", "show this", "/liger help dev", writers_only=False),
}
