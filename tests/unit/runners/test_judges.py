"""Verdicts of a GPU and of the interpreter beside it, joined: nothing that either found is lost."""

from __future__ import annotations

from runners.gauntlet.judges import BESIDE, INTERPRETED_ONLY, joined
from runners.protocol import Gate, Outcome, Verdict


def verdict(family: str, outcome: Outcome, where: str) -> Verdict:
    check = f"gauntlet/{family}" if family else "gauntlet"
    return Verdict(check=check, gate=Gate.correctness, outcome=outcome, summary=where)


def told(main: list[Verdict], beside: list[Verdict]) -> dict[str, tuple[str, str]]:
    return {one.check: (one.outcome.value, one.summary) for one in joined(main, beside)}


def test_what_only_the_interpreter_sees_is_its_verdict():
    assert INTERPRETED_ONLY == ("races",)
    assert set(INTERPRETED_ONLY) < set(BESIDE)
    for outcome in (Outcome.passed, Outcome.failed, Outcome.flagged):
        main, beside = verdict("races", Outcome.skipped, "gpu"), verdict("races", outcome, "interpreter")
        assert told([main], [beside]) == {"gauntlet/races": (outcome.value, "interpreter")}


def test_a_failure_on_either_side_is_a_failure():
    passed, failed = (
        verdict("poison", Outcome.passed, "gpu"),
        verdict("poison", Outcome.failed, "interpreter"),
    )
    assert told([passed], [failed]) == {"gauntlet/poison": ("failed", "interpreter")}
    passed, failed = (
        verdict("poison", Outcome.passed, "interpreter"),
        verdict("poison", Outcome.failed, "gpu"),
    )
    assert told([failed], [passed]) == {"gauntlet/poison": ("failed", "gpu")}


def test_the_gpu_stays_the_judge_of_the_rest():
    main = [verdict("shapes", Outcome.passed, "gpu"), verdict("large", Outcome.passed, "gpu")]
    assert told(main, [verdict("shapes", Outcome.passed, "interpreter")]) == {
        "gauntlet/shapes": ("passed", "gpu"),
        "gauntlet/large": ("passed", "gpu"),
    }


def test_a_judge_beside_that_could_not_finish_says_so():
    lost = verdict("", Outcome.failed, "the judge could not finish")
    assert told([verdict("shapes", Outcome.passed, "gpu")], [lost])["gauntlet"] == (
        "failed",
        "the judge could not finish",
    )
