"""Measurements side by side."""

from inline_snapshot import snapshot

from agents.dev.measurement_tables import MAX_ROWS, measurement_tables
from runners.protocol import Gate, Measurement, Outcome, Verdict


def verdict(*measurements: Measurement) -> Verdict:
    return Verdict(
        check="x", gate=Gate.benchmark, outcome=Outcome.passed, summary="", measurements=list(measurements)
    )


def timed(provider: str, median: float, **tags: str) -> Measurement:
    tags = {"shape": "8192x4096", "dtype": "bfloat16", "pass": "forward", "provider": provider, **tags}
    return Measurement(
        name="t", unit="ms", median=median, low=median * 0.99, high=median * 1.01, n=100, tags=tags
    )


def test_times_stand_beside_each_other_with_their_ratio() -> None:
    shown = measurement_tables(
        [verdict(timed("eager", 0.071), timed("candidate", 0.0355), timed("incumbent", 0.038))]
    )
    assert shown == snapshot(
        [
            """\
| shape | dtype | pass | candidate, ms | eager, ms | incumbent, ms | over eager | over incumbent |
| --- | --- | --- | --- | --- | --- | --- | --- |
| 8192x4096 | bfloat16 | forward | 0.0355 (0.03514 – 0.03585) | 0.071 (0.07029 – 0.07171) | 0.038 (0.03762 – 0.03838) | 2.00x | 1.07x |\
"""
        ]
    )


def test_ratio_needs_both_times() -> None:
    [shown] = measurement_tables(
        [verdict(timed("candidate", 0.5), timed("eager", 1.0, **{"pass": "backward"}))]
    )
    assert "x |" not in shown


def test_resources_of_a_kernel_are_one_row_an_architecture() -> None:
    def found(arch: str, resource: str, value: float) -> Measurement:
        return Measurement(
            name="r",
            unit=resource,
            median=value,
            tags={"arch": arch, "kernel": "_f", "n_cols": "1024", "resource": resource},
        )

    parts = [
        found(arch, name, value)
        for arch in ("sm_80", "sm_90")
        for name, value in (("registers", 32), ("spills", 0))
    ]
    assert measurement_tables([verdict(*parts)]) == snapshot(
        [
            """\
| arch | kernel | columns | dtype | registers | spills |
| --- | --- | --- | --- | --- | --- |
| sm\\_80 | \\_f | 1024 |  | 32 | 0 |
| sm\\_90 | \\_f | 1024 |  | 32 | 0 |\
"""
        ]
    )


def test_infinite_and_missing_values_do_not_break_the_table() -> None:
    odd = Measurement(name="a | b @you", unit="ratio", median=float("inf"), n=1)
    [shown] = measurement_tables([verdict(odd)])
    assert "inf" in shown
    assert "@you" not in shown


def test_long_tables_say_what_was_left_out() -> None:
    many = [Measurement(name=f"m{i}", unit="s", median=i) for i in range(MAX_ROWS + 7)]
    [shown] = measurement_tables([verdict(*many)])
    assert shown.endswith("… and 7 rows more in the report")


def test_nothing_measured_is_no_table() -> None:
    assert measurement_tables([verdict()]) == []
