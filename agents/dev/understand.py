"""The understand stage of `/liger dev`: from a person's words to a profile that they can approve, or a refusal."""

from __future__ import annotations

from dataclasses import dataclass

from agents.catalog.lookup import catalog
from agents.conventions.detection import detect
from agents.conventions.record import Conventions, NotAKernelLibrary
from agents.dev.analysis import Analysis, AnalysisFault, analyze
from agents.dev.compose import compose
from agents.dev.findings import Origin
from agents.dev.free_text import NOT_UNDERSTOOD, reference_from_text
from agents.dev.github_url import FetchedReference
from agents.dev.inputs import OpInput, classify, from_fetched
from agents.dev.naming import class_stem
from agents.dev.recognise import POINTS, TOLERANCE
from agents.dev.refused import Refused
from agents.ports import Bench, Model, OnProgress, Tree
from agents.profiles import Evidence, KernelProfile
from kernels.op_spec import OpSpec

__all__ = ["AnalysisFault", "Refused", "already_there", "understand"]


async def understand(
    text: str,
    block: str | None,
    tree: Tree,
    bench: Bench,
    model: Model | None = None,
    fetched: FetchedReference | None = None,
    base_sha: str = "",
    on_progress: OnProgress | None = None,
    *,
    host: str = "github.com",
) -> KernelProfile | Refused:
    """Turn the words after `/liger dev`, and the ```python block below them, into a profile.

    fetched: the text behind a link, which the app reads (agents reach no network). host: where links may point to.
    Raises ModelError when the configured model can't be used, AnalysisFault when the runner failed.
    """
    request = from_fetched(fetched) if fetched is not None else classify(text, block, host=host)
    if isinstance(request, Refused):
        return request
    if request.kind == "url" and request.op is None:
        return Refused(
            reason="The code behind the link was not fetched.",
            suggestions=("Paste it as a ```python block below the command.",),
        )
    try:
        conventions = detect(tree)
    except NotAKernelLibrary as error:
        return Refused(reason=str(error))
    stage = _Stage(tree, conventions, bench, base_sha, on_progress)
    return await (
        stage.from_free_text(request, model) if request.kind == "free_text" else stage.profile(request)
    )


@dataclass(frozen=True)
class _Stage:
    """One run of the stage in one checkout."""

    tree: Tree
    conventions: Conventions
    bench: Bench
    base_sha: str
    on_progress: OnProgress | None

    async def profile(self, request: OpInput) -> KernelProfile | Refused:
        op = request.op
        if op is None:
            return Refused(reason="The request names no reference.")
        taken = already_there(op.name, request.known, request.class_stem, self.conventions, self.tree)
        if taken is not None:
            return taken
        analysis = await analyze(op, self.bench, request.dotted_path, self.on_progress)
        if isinstance(analysis, Refused):
            return analysis
        origin = _origin(request, analysis)
        return compose(analysis.traced, analysis.derivation, self.conventions, origin, self.base_sha)

    async def from_free_text(self, request: OpInput, model: Model | None) -> KernelProfile | Refused:
        nearest = tuple(f"/liger dev {name}" for name in request.nearest)
        if model is None:
            return Refused(
                reason="This is free text, and no language model is configured to turn it into a reference.",
                needed="A known name, an expression, a dotted path, a link to code, or a ```python block below the command.",
                suggestions=nearest,
            )
        refused: Refused | None = None
        previous: OpSpec | None = None
        while True:
            last_try = refused is not None  # one retry, with the refusal as feedback
            written = await reference_from_text(request, model, refused, previous)
            result = await self.profile(written) if isinstance(written, OpInput) else written
            if isinstance(result, KernelProfile):
                return result
            refused, previous = result, written.op if isinstance(written, OpInput) else None
            exists_already = refused.where is not None and not refused.where.startswith("reference")
            if last_try or exists_already or refused.reason == NOT_UNDERSTOOD:
                return refused.model_copy(update={"suggestions": refused.suggestions or nearest})


def already_there(
    name: str, known: str | None, stem: str | None, conventions: Conventions, tree: Tree
) -> Refused | None:
    """The refusal when the checkout has this op, or a file of its name, already."""
    entry = catalog().ops.get(known or "")
    names = [name, stem or class_stem(name), *(entry.aliases if entry else ()), *([known] if known else [])]
    existing = conventions.existing(*names)
    if existing is not None:
        return Refused(
            reason=f"This repository already has `{existing.name}`.",
            where=existing.path,
            needed="Another operation name, if this is a different op: give it in front of an expression (`my_op(x) = …`) or of a ```python block.",
            suggestions=(f"/liger perf {existing.name}",),
        )
    for path in (
        conventions.path("ops", f"{name}.py"),
        conventions.path("transformers", f"{name}.py"),
        f"test/transformers/test_{name}.py",
    ):
        if tree.read(path) is not None:
            return Refused(
                reason=f"This repository already has a file for `{name}`.",
                where=path,
                needed="Another operation name.",
            )
    return None


def _origin(request: OpInput, analysis: Analysis) -> Origin:
    evidence = [Evidence(kind="read", text=f"the request: {request.text[:200]}", where=request.source)]
    match request.kind:
        case "catalog":
            why = f"`{request.text}` is a name of this known op"
        case "expression" if request.known:
            why = f"the expression has the value of the known op `{request.known}` at every probe point"
            probed = f"compared in float64 at {len(POINTS)} points of each input from {POINTS[0]} to {POINTS[-1]}, relative difference below {TOLERANCE:g}"
            evidence.append(Evidence(kind="probe", text=probed))
        case "free_text":
            why = "named by the model"
            evidence = [Evidence(kind="model", text=request.source)]
        case _:
            why = "the name that the request or the reference gives"
    traced = Evidence(kind="probe", text=f"traced in {analysis.environment}")
    return Origin(
        source=request.source,
        stem=request.class_stem,
        questions=request.questions,
        name_why=why,
        evidence=tuple(evidence),
        probes=(traced,),
    )
