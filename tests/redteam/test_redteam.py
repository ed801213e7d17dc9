"""Every published cheat and every subtle bug is caught; no honest candidate is rejected."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from runners.checks.families import FAMILIES
from runners.checks.static import check_static
from runners.gauntlet.judges import Judges, judges_of
from runners.jobs import run_job
from runners.products import has_product
from runners.protocol import CompilePayload, Job, Outcome, Status, Verdict
from tests.redteam.cheats import BUGS, CHEATS, Change
from tests.redteam.honest import HONEST, target

SEED = 20_261_130


@pytest.fixture(scope="module")
def gauntlets() -> Iterator[dict[str, Judges]]:
    """One judge an op; every candidate has a sandbox of its own, as in a job."""
    with ExitStack() as stack:
        yield {
            op: stack.enter_context(
                judges_of(target(op), seed=SEED, deadline_s=900, memory_bytes=8 * 1024**3)
            )
            for op in HONEST
        }


def repository(root: Path, op: str, source: str) -> Path:
    ops = root / "checkout" / "src" / "kit" / "ops"
    ops.mkdir(parents=True)
    for folder in (ops.parent, ops):
        (folder / "__init__.py").write_text("")
    (ops / f"{op}.py").write_text(source)
    return root / "checkout"


def judge(gauntlet: Judges, checkout: Path, op: str, families: list[str]) -> dict[str, Verdict]:
    outcomes = gauntlet.run(checkout, target(op), families=families)
    assert outcomes.refusal is None
    return {verdict.check.removeprefix("gauntlet/"): verdict for verdict in outcomes.verdicts}


def compiled(checkout: Path, op: str) -> list[Verdict]:
    payload = CompilePayload(checkout=str(checkout), target=target(op), archs=["sm_90"], n_cols=[4096])
    report = run_job(Job(id="r", nonce="n", deadline_s=120, payload=payload), lambda _: None)
    assert report.status is Status.completed, report
    return report.verdicts


def failed(verdicts: list[Verdict]) -> list[Verdict]:
    return [verdict for verdict in verdicts if verdict.outcome is Outcome.failed and verdict.hard]


@pytest.mark.parametrize("change", [*CHEATS, *BUGS], ids=lambda change: change.name)
def test_each_is_caught_by_who_should_catch_it(
    change: Change, tmp_path: Path, gauntlets: dict[str, Judges]
) -> None:
    """By every one of `caught_by`, on its own: no check leans on another."""
    checkout = repository(tmp_path, change.op, change.source())
    families = [name for name in change.caught_by if name not in ("static", "compile")]
    if "static" in change.caught_by:
        assert failed(check_static({target(change.op).path: change.source()})), "the source scan let it pass"
    if "compile" in change.caught_by:
        assert failed(compiled(checkout, change.op)), "the offline compile let it pass"
    if families:
        # inputs_unchanged, poison and races look over the cases of whatever ran beside them.
        found = judge(gauntlets[change.op], checkout, change.op, [*families, "no_grad", "saved_intact"])
        passed = [name for name in families if found[name].outcome is not Outcome.failed]
        assert not passed, f"let it pass: {[found[name].summary for name in passed]}"


@pytest.mark.parametrize("op", HONEST)
def test_an_honest_candidate_passes_everything(op: str, tmp_path: Path, gauntlets: dict[str, Judges]) -> None:
    source = HONEST[op][0]
    checkout = repository(tmp_path, op, source)
    path = target(op).path
    products = [path] if has_product(HONEST[op][1].source) else []
    assert failed(check_static({path: source}, products)) == []
    assert failed(compiled(checkout, op)) == []
    found = judge(gauntlets[op], checkout, op, [])
    assert failed(list(found.values())) == []
    # Nothing is silently left out: every family answers, and those that skip say why.
    assert found.keys() == {family.name for family in FAMILIES}
    assert all(verdict.summary for verdict in found.values())


def test_every_known_cheat_has_a_candidate() -> None:
    """Row 14, gaming an aggregate by one impossible time, has no candidate: the roofline alarm is tested with numbers."""
    assert {change.row for change in CHEATS} == set(range(1, 14))
