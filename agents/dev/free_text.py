"""Free text -> a reference, by asking the model one structured question. What it returns is checked like a person's block."""

from __future__ import annotations

from importlib import resources
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.dev.inputs import OpInput
from agents.dev.naming import is_operation_name
from agents.dev.reference_source import read_block
from agents.dev.refused import Mistake, Refused
from agents.ports import Model, ModelRequest
from agents.untrusted import as_seen, fenced
from kernels.op_spec import OpSpec, ScalarSpec, TensorSpec

PURPOSE = "reference_from_text"
NOT_UNDERSTOOD = "The text does not describe one computation that can be written as a reference."


class _Tensor(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    role: str = Field(
        pattern="^(full|column|row|scalar)$",
        description="full: every element its own value; column: one per column; row: one per row; scalar: 0-d",
    )
    dtype: str = Field(pattern="^(float|bool|int64)$")
    learnable: bool


class _Scalar(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    default: float | bool | str


class _Answer(BaseModel):
    """What the model is asked for."""

    model_config = ConfigDict(extra="forbid")
    understood: bool = Field(description="false when the text does not describe one computation on tensors")
    missing: str = Field(
        description="when not understood: what the person should say, one sentence; else empty"
    )
    name: str = Field(description="snake_case")
    entry: str = Field(description="the function or class in `source`")
    source: str = Field(description="self-contained plain PyTorch, or empty when not understood")
    summary: str = Field(description="one line of mathematics")
    tensors: list[_Tensor]
    scalars: list[_Scalar]


def schema() -> dict[str, Any]:
    """The JSON schema of the answer."""
    return _Answer.model_json_schema()


async def reference_from_text(
    request: OpInput, model: Model, refused: Refused | None = None, previous: OpSpec | None = None
) -> OpInput | Refused:
    """Ask for a reference. `refused`, `previous`: the first answer and why it failed, for the one retry. Raises ModelError."""
    user = f"The request, as typed by a person:\n{fenced(request.text)}"
    if request.nearest:
        user += f"\n\nKnown ops with similar names, should the request mean one of them: {', '.join(request.nearest)}."
    if refused is not None:
        said = "\n".join(part for part in (refused.reason, refused.where, refused.needed) if part)
        source = previous.source if previous else "(it had no usable source)"
        user += f"\n\nYour earlier reference:\n{fenced(source)}\n\nIt was refused:\n{fenced(said)}\n\nWrite another that computes the same and avoids this."
    system = (resources.files("agents") / "skills" / "dev" / "reference_from_text.md").read_text(
        encoding="utf-8"
    )
    reply = await model.ask(ModelRequest(purpose=PURPOSE, system=system, user=user, json_schema=schema()))
    try:
        answer = _Answer.model_validate(reply.data)
    except ValidationError as error:
        return Refused(reason=f"The model's answer does not fit: {error.errors()[0]['msg']}.")
    if not answer.understood:
        missing = as_seen(answer.missing, 300).strip() or "Say what is computed from which tensors."
        return Refused(
            reason="The text does not describe one computation that can be written as a reference.",
            needed=missing,
        )
    return _checked(request, answer, reply.model)


def _checked(request: OpInput, answer: _Answer, model_name: str) -> OpInput | Refused:
    if not is_operation_name(answer.name):
        return Refused(
            reason=f"The model named the op {answer.name[:60]!r}, which can't name a file.",
            needed="snake_case, 2 to 48 characters",
        )
    try:
        found = read_block(answer.source, answer.entry)
    except Mistake as mistake:
        return mistake.refused
    shapes = {"full": ("*", "n_cols"), "column": ("n_cols",), "row": ("*",), "scalar": ()}
    try:
        op = OpSpec(
            name=answer.name,
            entry=found.entry,
            source=found.source,
            kind="module" if found.kind == "module" else "function",
            tensors=tuple(
                TensorSpec(
                    name=tensor.name,
                    shape=shapes[tensor.role],
                    dtype=tensor.dtype,  # type: ignore[arg-type]
                    needs_grad=tensor.dtype == "float",
                    learnable=tensor.learnable,
                    init=("zeros" if tensor.name in {"bias", "beta", "shift"} else "ones")
                    if tensor.learnable
                    else None,
                )
                for tensor in answer.tensors
            )
            if found.kind == "function"
            else (),
            scalars=tuple(ScalarSpec(name=scalar.name, default=scalar.default) for scalar in answer.scalars)
            if found.kind == "function"
            else (),
            summary=as_seen(answer.summary, 200).strip(),
        )
    except ValidationError as error:
        return Refused(reason=f"The model's answer does not fit: {error.errors()[0]['msg']}.")
    question = "The reference was written by a language model from the request's words: check that it is what you meant."
    return request.model_copy(
        update={
            "op": op,
            "source": f"written by the model {model_name[:80]} from the request's words",
            "questions": (question, *found.questions),
        }
    )
