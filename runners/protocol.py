"""What a runner is sent and what it returns: Job, Report, Verdict, Measurement, Environment. Pure; no I/O.

The same JSON crosses a pipe (local runner) and an artifact (GitHub Actions). A candidate's failure is data in a
Report; an exception here means that the job itself was malformed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kernels.op_spec import OpSpec

PROTOCOL_VERSION = 1


class Record(BaseModel):
    """A strict record: unknown keys are refused, so that a newer peer is noticed."""

    model_config = ConfigDict(extra="forbid")


class Gate(StrEnum):
    """The four check runs of a pull request; each groups verdicts."""

    style = "style"
    correctness = "correctness"
    compile = "compile"
    benchmark = "benchmark"


class Outcome(StrEnum):
    """How one check ended."""

    passed = "passed"
    failed = "failed"
    skipped = "skipped"  # could not be run here; `summary` says why
    flagged = "flagged"  # soft: a person should look


class Measurement(Record):
    """One measured quantity with its spread."""

    name: str = Field(description='what was measured, e.g. "forward relu_squared 8192x4096 bf16"')
    unit: str = Field(description='"ms", "bytes", "registers", "ratio", "s", …')
    median: float
    low: float | None = Field(
        default=None, description="lower end of the 95% confidence interval of the median"
    )
    high: float | None = Field(
        default=None, description="upper end of the 95% confidence interval of the median"
    )
    n: int = Field(default=1, description="number of samples")
    tags: dict[str, str] = Field(
        default_factory=dict, description="op, shape, dtype, pass, provider, arch, …"
    )


class Verdict(Record):
    """What one check found about a candidate."""

    check: str = Field(description='family and name, e.g. "gauntlet/non_contiguous"')
    gate: Gate
    outcome: Outcome
    hard: bool = Field(default=True, description="a hard failure blocks; a soft one is flagged")
    summary: str = Field(description="one line for a person")
    details: str = Field(
        default="", description="log, numbers or diff; plain text, at most 20,000 characters"
    )
    path: str | None = Field(default=None, description="file in the target repository the finding is about")
    line: int | None = None
    measurements: list[Measurement] = Field(default_factory=list)
    elapsed_s: float = 0.0


class Environment(Record):
    """Where a report was made; every stored number carries one."""

    python: str
    platform: str
    torch: str | None = None
    triton: str | None = None
    transformers: str | None = None
    gpu: str | None = Field(default=None, description="None on a machine without one")
    gpu_count: int = 0
    driver: str | None = None
    cpu_count: int = 1


class Isolation(Record):
    """How the untrusted part was confined, as observed by the runner."""

    method: Literal["bubblewrap", "namespaces", "limits"]
    network: bool = Field(description="True when the child could reach a network")
    detail: str = ""


# --- jobs ------------------------------------------------------------------------------------------------------------


class AnalyzePayload(Record):
    """Trace a reference. `op.tensors` may be empty: then roles are found and reported as questions."""

    kind: Literal["analyze"] = "analyze"
    op: OpSpec
    dotted_path: str | None = Field(
        default=None, description='"package.module:Name" to read the reference from, instead of op.source'
    )


class StylePayload(Record):
    """Format and lint a candidate with the target's own rules, and scan it for what a kernel may not do."""

    kind: Literal["style"] = "style"
    checkout: str = Field(description="path of a target checkout on the runner; it is not changed")
    files: dict[str, str] = Field(description="candidate files: path in the target repository -> new text")
    fix: bool = Field(default=False, description="return formatted files instead of only judging them")
    ruff: str | None = Field(default=None, description='the target\'s own ruff requirement, e.g. "ruff<0.16"')
    products: list[str] = Field(
        default_factory=list, description="files whose reference multiplies matrices, which is left to torch"
    )


class KernelTarget(Record):
    """How the runner reaches a candidate's kernels inside the target repository."""

    op: OpSpec
    module: str = Field(description='import path, e.g. "liger_kernel.ops.relu_squared"')
    function_class: str = Field(description='the autograd.Function, e.g. "LigerReLUSquaredFunction"')
    kernels: list[str] = Field(description="names of the @triton.jit functions in `module`")
    call_order: list[str] = Field(description="argument names of Function.apply, in order")
    path: str = Field(
        description='source file in the target repository, e.g. "src/liger_kernel/ops/relu_squared.py"'
    )
    rtol: dict[str, float] = Field(
        default_factory=dict, description="dtype -> relative tolerance, with its reason in the profile"
    )
    multiples: dict[str, int] = Field(
        default_factory=dict,
        description="axis -> what its size must be a multiple of, as the profile says; found by trying where it is not here",
    )


class CorrectnessPayload(Record):
    """Run the target's own tests for a candidate, its neighbours, and the gauntlet."""

    kind: Literal["correctness"] = "correctness"
    checkout: str = Field(description="path of a checkout with the candidate applied; it is not changed")
    sha: str = ""
    target: KernelTarget | None = None
    tests: list[str] = Field(description="pytest arguments for the generated tests, relative to the checkout")
    neighbours: list[str] = Field(default_factory=list, description="tests that an export could break")
    imports: list[str] = Field(default_factory=list, description="modules and module:symbol that must import")
    seed: int = Field(default=0, description="held out: drawn by the app, unknown to the candidate's author")


class CompilePayload(Record):
    """Compile a candidate's kernels offline for every architecture."""

    kind: Literal["compile"] = "compile"
    checkout: str
    sha: str = ""
    target: KernelTarget
    archs: list[str] = Field(default_factory=lambda: ["sm_80", "sm_90", "sm_100", "gfx942"])
    n_cols: list[int] = Field(
        default_factory=lambda: [1024, 4096, 16384, 32768], description="row widths to compile at"
    )
    num_warps: list[int] = Field(
        default_factory=list,
        description="other numbers of warps to compile each kernel with: measured, and no part of the verdict",
    )


class BenchmarkPayload(Record):
    """Time candidate, eager, torch.compile and incumbent in one process. Without a GPU: the bytes model alone."""

    kind: Literal["benchmark"] = "benchmark"
    checkout: str
    sha: str = ""
    target: KernelTarget
    shapes: list[tuple[int, int]] = Field(description="(n_rows, n_cols)")
    dtypes: list[str] = Field(default_factory=lambda: ["bfloat16"])
    traffic: dict[str, Any] = Field(
        default_factory=dict, description="the profile's bytes model (kernels.derivation.Traffic)"
    )
    incumbent: KernelTarget | None = Field(
        default=None, description="the kernel that the checkout already has for this op"
    )
    compiled: bool = Field(default=True, description="whether torch.compile is timed too")


class VerifyModelPayload(Record):
    """Run a model patch against the real classes, tiny: parity, kernel calls, flags, revert, reduced convergence."""

    kind: Literal["verify_model"] = "verify_model"
    checkout: str = Field(description="path of a target checkout; it is not changed")
    sha: str = ""
    files: dict[str, str] = Field(default_factory=dict, description="candidate files laid over the checkout")
    baseline: dict[str, str] = Field(
        default_factory=dict,
        description="texts of edited files before the change: what fails with them as well is not the change's",
    )
    package: str = Field(description='"liger_kernel"')
    function: str = Field(description='"apply_liger_kernel_to_nemotron"')
    model_type: str = Field(description='as its module is named: "openai_gpt"')
    modeling_module: str = Field(description='"transformers.models.nemotron.modeling_nemotron"')
    causal_class: str
    config_class: str = Field(description="exported by transformers itself")
    tiny_config: dict[str, Any] = Field(description="arguments of the config class")
    flags: dict[str, bool] = Field(description="boolean parameters that change something -> their defaults")
    imports: list[str] = Field(default_factory=list, description='"module:symbol" that must import')
    instance_tests: list[str] = Field(default_factory=list, description='"path::test_function"')
    convergence: list[str] = Field(default_factory=list, description="paths of convergence test files")
    only_tests: bool = Field(default=False, description="run instance_tests and convergence alone")
    scenarios: list[str] = Field(
        default_factory=list, description='the only scenarios to run, "parity/class_float32"; all when empty'
    )
    stand_ins: bool = Field(
        default=False,
        description="replays of history: stand in for names of other models that transformers dropped since",
    )


class ModelRequest(Record):
    """One model of the installed transformers, by name or by its config.json."""

    model: str | None = Field(default=None, description='"nemotron" or "NemotronForCausalLM"')
    config: dict[str, Any] | None = Field(default=None, description="a config.json, in place of a name")


class InspectModelPayload(Record):
    """Find out what models are made of, and which classes of the target compute the same: numbers, no decisions."""

    kind: Literal["inspect_model"] = "inspect_model"
    checkout: str = Field(description="path of a target checkout; its `src` is imported, it is not changed")
    models: list[ModelRequest] = Field(min_length=1)


Payload = Annotated[
    AnalyzePayload
    | StylePayload
    | CorrectnessPayload
    | CompilePayload
    | BenchmarkPayload
    | VerifyModelPayload
    | InspectModelPayload,
    Field(discriminator="kind"),
]


class Job(Record):
    """One unit of work for a runner."""

    version: int = PROTOCOL_VERSION
    id: str
    nonce: str = Field(description="fresh per dispatch; the report must carry it back")
    deadline_s: float = Field(default=300.0, description="wall clock after which the child is killed")
    memory_bytes: int = Field(default=8 * 1024**3, description="address-space or cgroup limit of the child")
    payload: Payload


# --- reports ---------------------------------------------------------------------------------------------------------


class Refusal(Record):
    """Why a reference can't be derived or a candidate can't be judged: a person's mistake, or a limit of ours."""

    reason: str = Field(description="one sentence a person understands")
    node: str | None = Field(default=None, description='the operation, e.g. "aten.sort.default"')
    where: str | None = Field(
        default=None, description='source line in the reference, e.g. "line 4: y = x.sort()"'
    )
    needed: str | None = Field(default=None, description="what would be needed to support it")


class AnalyzeResult(Record):
    """A traced op. `traced` is kernels.row_program's JSON; `op` has its roles filled in."""

    kind: Literal["analyze"] = "analyze"
    op: OpSpec
    traced: dict[str, Any] = Field(description="kernels.traced.TracedOp as JSON")
    questions: list[str] = Field(default_factory=list, description="roles that were guessed, as sentences")


class StyleResult(Record):
    kind: Literal["style"] = "style"
    files: dict[str, str] = Field(
        default_factory=dict, description="formatted files when the job said fix=True"
    )


class InspectModelResult(Record):
    """One entry for each model asked for, in order: {"facts": …} or {"refusal": {"code", "detail", "known"}}, and "seconds"."""

    kind: Literal["inspect_model"] = "inspect_model"
    models: list[dict[str, Any]]


class EmptyResult(Record):
    kind: Literal["none"] = "none"


Result = Annotated[
    AnalyzeResult | StyleResult | InspectModelResult | EmptyResult, Field(discriminator="kind")
]


class Status(StrEnum):
    """How a job ended. Everything but `error` is about the candidate; `error` is our fault."""

    completed = "completed"
    refused = "refused"  # `refusal` says why
    timeout = "timeout"
    crashed = "crashed"  # the child died (signal, out of memory)
    error = "error"


class Report(Record):
    """What a runner returns for one job."""

    version: int = PROTOCOL_VERSION
    job_id: str
    nonce: str
    kind: str
    status: Status
    refusal: Refusal | None = None
    verdicts: list[Verdict] = Field(default_factory=list)
    result: Result = Field(default_factory=EmptyResult)
    environment: Environment | None = None
    isolation: Isolation | None = None
    elapsed_s: float = 0.0
    log_tail: str = Field(default="", description="last 8,000 characters of the child's output, redacted")

    @property
    def ok(self) -> bool:
        """True when the job completed and no hard check failed."""
        return self.status is Status.completed and not any(
            v.hard and v.outcome is Outcome.failed for v in self.verdicts
        )


class Progress(Record):
    """One line on the runner's standard error while a job runs, as JSON after the prefix `progress `."""

    job_id: str
    done: int
    total: int | None = None
    note: str = ""
