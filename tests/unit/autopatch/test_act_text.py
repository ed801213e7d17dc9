"""The pull request's words, the row's place, and the pure parts of the model checks."""

from __future__ import annotations

import pytest

from agents.autopatch.patch_plan import patch_plan
from agents.autopatch.pull_text import pull_body, pull_title
from agents.autopatch.splice import insert_after, place, relative
from agents.conventions import Conventions
from runners.model_checks.confined.single_test import extract
from runners.model_checks.verify import _only_tolerance
from tests.unit.autopatch.act_profiles import profile, standard_rope
from tests.unit.autopatch.test_act_model_file import layout
from tests.unit.autopatch.test_act_patch_function import CLASSES, HELPERS, NORMS

TEMPLATE = "## Summary\n<!-- -->\n<!--\n## Details\n-->\n## Testing Done\n- Hardware Type: <BLANK>\n- [ ] run `make test`\n"


def conventions() -> Conventions:
    return Conventions(
        package="liger_kernel", source_root="src/liger_kernel", version="0.8.5", ops_import="package",
        exports_wrappers=True, transformers_init="lazy", calculate_settings=True, ensure_contiguous=True,
        device_context=True, extra_repr=True, line_length=120, benchmark_api="builders", test_helpers=(),
        allclose_extra_info=True, infer_device_module="liger_kernel.utils", pull_request_template=TEMPLATE,
        evidence={},
    )  # fmt: skip


def test_the_pull_request_has_the_templates_sections_the_decisions_and_no_ticked_box() -> None:
    made = profile(rope=standard_rope(patched=False, why="half of the head is rotated"))
    plan = patch_plan(made, layout(classes=CLASSES, patch_functions=HELPERS, norms=NORMS))
    body = pull_body(made, plan, conventions(), ["rms_norm.py: a class"], ["README.md: no table"])
    assert [line for line in body.splitlines() if line.startswith("## ")] == [
        "## Summary", "## Details", "## Testing Done",
    ]  # fmt: skip
    assert body.count("0 apart") == 12
    assert "half of the head is rotated" in body
    assert "rms\\_norm.py: a class" in body or "rms_norm.py: a class" in body
    assert "[x]" not in body
    assert "- [ ] run `make test`" in body
    assert f"sha256:{made.sha256()}" in body


def test_the_title_says_what_is_added() -> None:
    assert pull_title(profile()) == "Add Liger Kernel support for Tiny models"
    modified = profile(mode="modify", requested=["--add relu_squared"])
    assert pull_title(modified) == "Add relu_squared to Liger Kernel's Tiny patch"


@pytest.mark.parametrize(
    ("names", "value", "index"),
    [(["a", "c", "d"], "b", 1), ([], "b", 0), (["z", "a", "c"], "b", 2), (["a", "b"], "c", 2)],
)
def test_a_place_leaves_the_fewest_names_out_of_order(names: list[str], value: str, index: int) -> None:
    assert place(names, value) == index


def test_a_relative_shares_the_beginning_of_the_name() -> None:
    assert relative(["llama", "qwen3", "qwen3_moe"], "qwen3_next") in {"qwen3", "qwen3_moe"}
    assert relative(["llama", "mistral"], "qwen3") is None


def test_an_insertion_takes_the_line_ending_of_its_place() -> None:
    assert insert_after("a\r\nb\r\n", 1, "x\n") == "a\r\nx\r\nb\r\n"
    assert insert_after("a\nb", 2, "x\n") == "a\nb\nx\n"


def test_one_test_is_taken_out_with_what_it_needs_and_no_more() -> None:
    source = (
        "import os\nimport sys\nfrom a import broken\nLIMIT = 3\n\ndef helper():\n    return sys.path\n\n"
        "def test_a():\n    assert helper() and LIMIT\n\ndef test_b():\n    broken()\n"
    )
    alone = extract(source, "test_a")
    assert "import sys" in alone
    assert "LIMIT = 3" in alone
    assert "broken" not in alone
    assert "import os" not in alone
    with pytest.raises(LookupError, match="no test named test_c"):
        extract(source, "test_c")


def test_a_distance_alone_is_a_soft_failure_and_a_nan_is_not() -> None:
    distance = "AssertionError: [Loss]Number of mismatched elements: 1\nMismatch at index (0, 0): tensor1[(0, 0)] = 6.2"
    assert _only_tolerance(distance)
    assert not _only_tolerance(distance.replace("6.2", "nan"))
    assert not _only_tolerance("TypeError: no")
