"""What a checkout's conventions are, read from its text."""

import pytest
from inline_snapshot import snapshot

from agents.conventions import NotAKernelLibrary, detect
from tests.dict_tree import DictTree
from tests.mini_library import OPS_INIT, mini_library


def detected(**changes: str | None):
    return detect(DictTree(mini_library(**changes)))


def test_every_convention_says_where_it_was_read() -> None:
    assert detected().for_people() == snapshot(
        {
            "version": "1.2.3 (pyproject.toml:3)",
            "line_length": "100 columns (pyproject.toml:6)",
            "ruff_requirement": "ruff>=0.12.0,<0.16.0 (setup.py:4)",
            "transformers_requirement": "transformers>=4.52.0 (setup.py:3)",
            "ops_import": "from mini_kernel.ops; Function classes exported there: 1 (src/mini_kernel/ops/__init__.py:1)",
            "exports_wrappers": "forward and backward wrappers exported: 2 (src/mini_kernel/ops/__init__.py:2)",
            "transformers_init": "lazy (src/mini_kernel/transformers/__init__.py:9)",
            "calculate_settings": "defined (src/mini_kernel/ops/utils.py:4)",
            "ensure_contiguous": "defined (src/mini_kernel/ops/utils.py:1)",
            "device_context": "not there (src/mini_kernel/ops/utils.py)",
            "benchmark_api": "functions (benchmark/scripts/utils.py:1)",
            "test_helpers": "assert_verbose_allclose, set_seed, supports_bfloat16 (test/utils.py:4)",
            "allclose_extra_info": "yes (test/utils.py:4)",
            "pull_request_template": "sections: Summary, Details, Testing Done (.github/pull_request_template.md)",
            "existing_ops": "ops: 1 (src/mini_kernel/ops)",
            "extra_repr": "modules that define it: 1 (src/mini_kernel/transformers/gate.py:3)",
            "infer_device_module": "mini_kernel.utils (src/mini_kernel/utils.py:1)",
        }
    )


def test_function_classes_are_imported_from_the_module_when_the_ops_package_exports_nothing() -> None:
    found = detected(ops_init="")
    assert (found.ops_import, found.exports_wrappers) == ("submodule", False)
    assert detected().ops_import == "package"


def test_wrappers_are_not_exported_when_no_sibling_exports_them() -> None:
    only_function = OPS_INIT.splitlines(keepends=True)[0]
    assert detected(ops_init=only_function).exports_wrappers is False


@pytest.mark.parametrize(
    ("utils", "models", "api", "bytes_per_token"),
    [
        ("def _test_memory(f): ...\n", None, "functions", False),
        (
            "def run_speed_benchmark(f): ...\n",
            "def compute_seq_len_sweep_config(model_cfg, kernel_bytes_per_token=None): ...\n",
            "sweeps",
            True,
        ),
        (
            "def run_speed_benchmark(f): ...\n",
            "def compute_seq_len_sweep_config(model_cfg, probe_fn, probe_seq_len): ...\n",
            "sweeps",
            False,
        ),
        (
            "def build_speed_bench_fn(f): ...\n",
            "def build_token_length_sweep(kernel_name): ...\n",
            "builders",
            False,
        ),
        ("def run_speed_benchmark(f): ...\n", None, "functions", False),
    ],
)
def test_benchmark_api_is_the_newest_that_the_scripts_offer(utils, models, api, bytes_per_token) -> None:
    files = mini_library(benchmark_utils=utils)
    if models:
        files["benchmark/scripts/benchmark_model_configs.py"] = models
    found = detect(DictTree(files))
    assert (found.benchmark_api, found.bytes_per_token_sweep) == (api, bytes_per_token)


def test_plain_transformers_init_is_told_from_a_lazy_one() -> None:
    assert detected().transformers_init == "lazy"
    assert (
        detected(transformers_init="from mini_kernel.transformers.gate import MiniGate\n").transformers_init
        == "plain"
    )


def test_extra_info_is_used_only_where_the_helper_takes_it() -> None:
    old = "def assert_verbose_allclose(tensor1, tensor2, rtol=1e-05, atol=1e-08, max_print=5):\n    pass\n"
    assert detected().allclose_extra_info is True
    assert detected(test_utils=old).allclose_extra_info is False
    assert detected(test_utils=old).test_helpers == ("assert_verbose_allclose",)


@pytest.mark.parametrize("name", ["gate", "GATE", "liger_gate", "MiniGate", "Ga te"])
def test_existing_op_is_found_in_any_spelling(name: str) -> None:
    found = detected().existing(name.replace("liger_", "").replace("Mini", ""))
    assert found is not None
    assert found.path == "src/mini_kernel/ops/gate.py"
    assert found.functionals == ("liger_gate",)


def test_op_that_is_not_there_is_not_found() -> None:
    assert detected().existing("relu_squared", "gated") is None


def test_repository_without_kernels_is_refused_in_one_sentence() -> None:
    with pytest.raises(NotAKernelLibrary) as refusal:
        detect(DictTree({"README.md": "# hello", "src/app/ops/x.py": "import os"}))
    assert str(refusal.value) == snapshot(
        "This repository doesn't look like a Triton kernel library: no @triton.jit kernel under src/<package>/ops/ or <package>/ops/."
    )


def test_kernel_library_of_another_layout_is_told_what_it_lacks() -> None:
    with pytest.raises(NotAKernelLibrary) as refusal:
        detected(functional=None, test_utils=None)
    assert str(refusal.value) == snapshot(
        "This repository has Triton kernels in src/mini_kernel/ops but no src/mini_kernel/transformers/functional.py, test/utils.py, so I don't know where a new kernel's module, exports, tests and benchmark go."
    )


def test_broken_pyproject_is_the_persons_to_mend() -> None:
    with pytest.raises(NotAKernelLibrary, match=r"pyproject\.toml is not valid TOML"):
        detected(pyproject="[project\n")


def test_source_that_does_not_parse_is_skipped_not_fatal() -> None:
    files = mini_library()
    files["src/mini_kernel/ops/broken.py"] = "@triton.jit\ndef (:\n"
    assert [op.name for op in detect(DictTree(files)).existing_ops] == ["gate"]


def test_sections_hidden_in_comments_are_sections_too() -> None:
    assert detected().pull_request_sections() == ["Summary", "Details", "Testing Done"]
    assert detected(template=None).pull_request_sections() == []
