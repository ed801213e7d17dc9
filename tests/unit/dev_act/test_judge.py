"""What a report amounts to, as a check run."""

import pytest
from inline_snapshot import snapshot

from agents.dev.check_result import ANNOTATIONS_A_REQUEST, MAX_MARKDOWN, MAX_TITLE
from agents.dev.verify import judge
from runners.protocol import Environment, Gate, Isolation, Outcome, Refusal, Report, Status, Verdict
from tests.dev_profiles import RELU_SQUARED, kernel_profile
from tests.unit.dev_act.test_pull_text import ROOFLINE


def report(*verdicts: Verdict, status: Status = Status.completed, **fields) -> Report:
    return Report(
        job_id="j",
        nonce="n",
        kind="correctness",
        status=status,
        verdicts=list(verdicts),
        elapsed_s=12.3,
        **fields,
    )


def verdict(check: str, outcome: Outcome, gate: Gate = Gate.correctness, **fields) -> Verdict:
    return Verdict(
        **{"check": check, "gate": gate, "outcome": outcome, "summary": f"{check} is {outcome}", **fields}
    )


def judged(*verdicts: Verdict, gate: Gate = Gate.correctness, **fields):
    return judge(gate, report(*verdicts, **fields))


def test_all_passed_is_success() -> None:
    result = judged(verdict("a", Outcome.passed), verdict("b", Outcome.passed))
    assert (result.name, result.conclusion, result.title) == (
        "liger-bot / correctness",
        "success",
        "2 passed",
    )


def test_one_hard_failure_blocks_and_is_the_title() -> None:
    result = judged(
        verdict("a", Outcome.passed),
        verdict("b", Outcome.flagged),
        verdict("c", Outcome.failed),
        verdict("d", Outcome.failed),
    )
    assert (result.conclusion, result.title) == ("failure", "c: c is failed (and 1 more)")
    assert not result.passed


@pytest.mark.parametrize("soft", [verdict("t", Outcome.flagged), verdict("t", Outcome.failed, hard=False)])
def test_soft_finding_asks_for_a_look_and_does_not_block(soft: Verdict) -> None:
    result = judged(verdict("a", Outcome.passed), soft)
    assert result.conclusion == "neutral"
    assert result.title.startswith("To look at: t: ")
    assert result.passed


def test_no_gpu_is_neutral_and_says_what_the_runner_said() -> None:
    skipped = verdict(
        "benchmark",
        Outcome.skipped,
        Gate.benchmark,
        summary="no GPU here; predicted floor 0.031 ms for 134 MB",
    )
    result = judged(skipped, gate=Gate.benchmark)
    assert (result.conclusion, result.title) == (
        "neutral",
        "no GPU here; predicted floor 0.031 ms for 134 MB",
    )


def test_something_skipped_beside_passes_is_success_that_says_so() -> None:
    assert (
        judged(verdict("a", Outcome.passed), verdict("b", Outcome.skipped)).title
        == "1 passed, 1 could not be run here"
    )


@pytest.mark.parametrize("verdicts", [(), (verdict("style", Outcome.passed, Gate.style),)])
def test_report_that_says_nothing_about_the_gate_never_passes(verdicts) -> None:
    result = judged(*verdicts)
    assert result.conclusion == "action_required"
    assert not result.passed


@pytest.mark.parametrize(
    ("status", "conclusion"),
    [
        (Status.timeout, "timed_out"),
        (Status.error, "action_required"),
        (Status.crashed, "failure"),
        (Status.refused, "failure"),
    ],
)
def test_job_that_did_not_complete_never_passes_whatever_it_claims(status: Status, conclusion: str) -> None:
    result = judged(verdict("a", Outcome.passed), status=status, log_tail="Traceback …")
    assert result.conclusion == conclusion
    assert "Traceback" in result.text


def test_refusal_is_told_in_words() -> None:
    refusal = Refusal(
        reason="sort is not supported",
        node="aten.sort.default",
        where="line 4: y = x.sort()",
        needed="a schedule that sorts",
    )
    result = judged(status=Status.refused, refusal=refusal)
    assert result.title == "sort is not supported"
    assert result.summary == snapshot("""\
| refused |  |
| --- | --- |
| reason | sort is not supported |
| operation | `aten.sort.default` |
| where | `line 4: y = x.sort()` |
| needed | a schedule that sorts |

<sub>12.3 s</sub>\
""")


def test_summary_is_a_table_with_the_worst_first_and_the_environment() -> None:
    environment = Environment(python="3.11", platform="linux", torch="2.13.0", triton="3.9.0", cpu_count=2)
    isolation = Isolation(method="namespaces", network=False)
    result = judged(
        verdict("a", Outcome.passed, elapsed_s=1.25),
        verdict("b", Outcome.failed, summary="dx wrong | @you", details="x\n```\ny"),
        environment=environment,
        isolation=isolation,
    )
    assert result.summary == snapshot("""\
|  | check | what was found | time |
| --- | --- | --- | --- |
| ❌ | `b` | dx wrong \\| @\u200byou |  |
| ✅ | `a` | a is passed | 1.2 s |

<sub>no GPU, 2 CPU cores · torch 2.13.0 · triton 3.9.0 · Python 3.11 · confined by namespaces, no network · 12.3 s</sub>\
""")
    assert result.text == snapshot("""\
### b

dx wrong \\| @\u200byou

````
x
```
y
````\
""")


def test_findings_with_a_path_become_annotations_in_batches() -> None:
    many = [verdict(f"c{i}", Outcome.failed, path="src/a.py", line=i) for i in range(120)]
    result = judged(
        *many, verdict("ok", Outcome.passed, path="src/a.py"), verdict("soft", Outcome.flagged, path="b.py")
    )
    assert [len(batch) for batch in result.annotation_batches()] == [ANNOTATIONS_A_REQUEST, 50, 21]
    assert {one.level for one in result.annotations} == {"failure", "warning"}
    assert min(one.line for one in result.annotations) == 1


def test_everything_fits_what_github_takes() -> None:
    huge = [
        verdict(f"c{i}", Outcome.failed, summary="s" * 3000, details="d`" * 10_000, path="a.py")
        for i in range(40)
    ]
    result = judged(*huge)
    assert len(result.summary) <= MAX_MARKDOWN
    assert len(result.text) <= MAX_MARKDOWN
    assert len(result.title) <= MAX_TITLE
    assert all(len(one.message) <= 4000 for one in result.annotations)


def test_prediction_stands_in_for_a_benchmark_that_could_not_run() -> None:
    skipped = verdict("benchmark", Outcome.skipped, Gate.benchmark, summary="no GPU here")
    timed = verdict("benchmark", Outcome.passed, Gate.benchmark)
    profile = kernel_profile(RELU_SQUARED, roofline=[ROOFLINE])
    shown = judge(Gate.benchmark, report(skipped), profile).summary
    assert "2.00x forward, 3.33x backward over eager" in shown
    assert "Nothing here was timed" in shown
    assert "Nothing here was timed" not in judge(Gate.benchmark, report(timed), profile).summary
