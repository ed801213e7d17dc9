"""What a change of a patch answers for, and which transformers a checkout supports."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.model_checks.baseline import is_old
from runners.model_checks.versions import Range, sites, supported


def finding(name: str, summary: str, details: str = "", ok: bool | None = False) -> dict[str, object]:
    return {"name": name, "ok": ok, "summary": summary, "details": details}


DEAD = "assigned, but not there: modeling_tiny.CrossEntropyLoss"
COUNTS = "class path {{'RMSNorm': 9, 'Rope': 2}}, instance path {{'RMSNorm': {norms}, 'Rope': {ropes}}}"
FAR = "{many} of 29 differ; worst lm_head.weight: {far} from fp32, HuggingFace 0.01"


@pytest.mark.parametrize(
    ("name", "before", "after", "old"),
    [
        ("dead_names", DEAD, DEAD, True),
        ("dead_names", DEAD, f"{DEAD}, modeling_tiny.TinyNorm", False),
        ("dead_names", f"{DEAD}, modeling_tiny.TinyNorm", DEAD, True),
        ("signature", "lacks a; lacks b", "lacks b", True),
        ("signature", "lacks a", "lacks a; another default for b", False),
        ("kernel_calls", COUNTS.format(norms=5, ropes=2), COUNTS.format(norms=7, ropes=2), True),
        ("kernel_calls", COUNTS.format(norms=5, ropes=2), COUNTS.format(norms=5, ropes=0), False),
        ("kernel_calls", "patching or running the tiny model failed", COUNTS.format(norms=5, ropes=2), False),
        ("parity/class_float32", FAR.format(many=3, far=0.12), FAR.format(many=3, far=0.13), True),
        ("parity/class_float32", FAR.format(many=3, far=0.12), FAR.format(many=4, far=0.12), False),
        ("parity/class_float32", FAR.format(many=3, far=0.12), FAR.format(many=3, far=0.9), False),
        ("parity/class_float32", FAR.format(many=3, far=0.12), FAR.format(many=3, far="inf"), False),
        ("flag/class_rope", "rope changes no kernel call", "rope changes no kernel call", True),
        ("flag/class_rope", "rope changes no kernel call", "rope=False fails", False),
        ("revert", "still called after the revert: {'Rope': 2}", "still called after the revert: {'Rope': 4}", True),
    ],
)  # fmt: skip
def test_only_what_was_not_there_before_is_the_changes(name: str, before: str, after: str, old: bool) -> None:
    assert is_old(finding(name, before), finding(name, after)) is old


def test_the_cases_of_a_forward_are_compared_one_by_one() -> None:
    first, second = "train, labels: loss 1.0, wanted 2.0\n", "eval, none: other logits\n"
    before = finding("forward_cases", "1 of 28 differ", first)
    assert is_old(before, finding("forward_cases", "1 of 28 differ", first.replace("1.0", "1.1")))
    assert not is_old(before, finding("forward_cases", "2 of 28 differ", first + second))


@pytest.mark.parametrize("before", [None, finding("revert", "all right", ok=True)])
def test_what_passed_before_or_was_not_run_is_new(before: dict[str, object] | None) -> None:
    assert not is_old(before, finding("revert", "all wrong"))


@pytest.mark.parametrize(
    ("name", "text", "oldest", "below"),
    [
        ("setup.py", '"dev": [\n    "transformers>=4.52.0",\n]', "4.52.0", ""),
        ("pyproject.toml", 'dependencies = ["transformers >=4.44.2, <5.1"]', "4.44.2", "5.1"),
        ("setup.py", '"transformers",', "", ""),
        ("README.md", "transformers>=4.52.0", "", ""),
    ],
)
def test_the_range_is_read_from_the_checkouts_own_files(
    tmp_path: Path, name: str, text: str, oldest: str, below: str
) -> None:
    (tmp_path / name).write_text(text)
    found = supported(tmp_path)
    assert (found.oldest, found.below) == (oldest, below)


def test_a_patch_release_stands_for_the_oldest_and_a_bound_is_kept() -> None:
    declared = Range("4.52.0", "5.1", "setup.py")
    assert [declared.is_oldest(version) for version in ("4.52.4", "4.53.0", "5.0.0")] == [True, False, False]
    assert [declared.has(version) for version in ("4.51.3", "4.52.0", "5.0.9", "5.1.0")] == [
        False,
        True,
        True,
        False,
    ]


def test_the_runners_environments_are_named_by_what_is_in_them(tmp_path: Path) -> None:
    for version in ("5.0.0", "4.52.4"):
        (tmp_path / version / f"transformers-{version}.dist-info").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    listed = ":".join(str(tmp_path / name) for name in ("5.0.0", "empty", "4.52.4", "gone"))
    assert list(sites(listed)) == ["4.52.4", "5.0.0"]
