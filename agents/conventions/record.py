"""The conventions of one target checkout, as data with evidence. Pure."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field

from agents.profiles import Evidence
from kernels.op_spec import Frozen

BenchmarkApi = Literal["functions", "sweeps", "builders"]


class NotAKernelLibrary(Exception):  # noqa: N818 - an answer to a person, not a fault
    """The checkout lacks what a kernel library of the supported layout has; the message says what, in one sentence."""


class ExistingOp(Frozen):
    """One op that the checkout already has."""

    name: str = Field(description='stem of its module, e.g. "swiglu"')
    path: str
    function_classes: tuple[str, ...] = Field(description="autograd.Function classes defined there")
    functionals: tuple[str, ...] = Field(default=(), description='functions over them, e.g. "liger_swiglu"')
    kernels: tuple[str, ...] = Field(default=(), description="names of its @triton.jit functions")

    def names(self) -> frozenset[str]:
        """Every name a person may know it by, squeezed: "relusquared" for LigerReLUSquaredFunction and liger_relu_squared."""
        wrapped = (re.sub(r"^Liger|Function$", "", name) for name in self.function_classes)
        called = (name.removeprefix("liger_") for name in self.functionals)
        return frozenset(squeeze(name) for name in (self.name, *wrapped, *called))


class Conventions(Frozen):
    """How a checkout lays out, names, exports, tests and benchmarks its kernels."""

    package: str = Field(description='import name, e.g. "liger_kernel"')
    source_root: str = Field(description='folder of that package, e.g. "src/liger_kernel"')
    version: str = Field(description="as pyproject.toml states it; empty when it doesn't")
    ops_import: Literal["package", "submodule"] = Field(
        description="whether wrappers import Function classes from the ops package (so that vendors can replace them) or from its modules"
    )
    exports_wrappers: bool = Field(
        description="the ops package exports {op}_forward and {op}_backward beside the Function"
    )
    transformers_init: Literal["lazy", "plain"] = Field(
        description="lazy: names that need transformers hide behind __getattr__ and TYPE_CHECKING; plain: all imported at once"
    )
    calculate_settings: bool = Field(description="ops.utils has calculate_settings")
    ensure_contiguous: bool = Field(description="ops.utils has ensure_contiguous")
    device_context: bool = Field(description="ops.utils has device_context, and launches are wrapped in it")
    extra_repr: bool = Field(description="most modules of the checkout with parameters define extra_repr")
    ruff_requirement: str | None = Field(
        default=None, description='the requirement as written, e.g. "ruff>=0.12.0,<0.16.0"'
    )
    line_length: int = 88
    benchmark_api: BenchmarkApi = Field(
        description="functions: do_bench in each script; sweeps: model registry and run_speed_benchmark; builders: build_speed_bench_fn"
    )
    bytes_per_token_sweep: bool = Field(
        default=False,
        description="compute_seq_len_sweep_config takes kernel_bytes_per_token instead of a probe",
    )
    test_helpers: tuple[str, ...] = Field(
        description="of assert_verbose_allclose, set_seed, supports_bfloat16: those in test/utils.py"
    )
    allclose_extra_info: bool = Field(description="assert_verbose_allclose takes extra_info")
    infer_device_module: str = Field(description='where infer_device is defined, e.g. "liger_kernel.utils"')
    transformers_requirement: str | None = None
    pull_request_template: str = Field(
        default="", description="text of the template; empty when there is none"
    )
    existing_ops: tuple[ExistingOp, ...] = ()
    evidence: dict[str, Evidence] = Field(description="field -> where it was read")

    def path(self, *parts: str) -> str:
        """A path below the package: path("ops", "softmax.py") -> "src/liger_kernel/ops/softmax.py"."""
        return "/".join((self.source_root, *parts))

    def existing(self, *names: str) -> ExistingOp | None:
        """The op of the checkout known by one of these names, in any spelling; None when it has none of them."""
        wanted = {squeeze(name) for name in names}
        return next((op for op in self.existing_ops if wanted & op.names()), None)

    def pull_request_sections(self) -> list[str]:
        """Headings of the pull-request template, in order, those inside comments too (Liger hides optional ones so)."""
        return re.findall(r"^##\s+(.+?)\s*$", self.pull_request_template, flags=re.MULTILINE)

    def for_people(self) -> dict[str, str]:
        """Each convention in words with where it was read, for a profile."""
        return {
            field: f"{seen.text} ({seen.where})" if seen.where else seen.text
            for field, seen in self.evidence.items()
        }


def squeeze(name: str) -> str:
    """A name without case, separators and spaces, for comparison: "ReLU_Squared" -> "relusquared"."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
