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
| shape | dtype | pass | candidate, ms | eager, ms | incumbent, ms | eager / candidate | incumbent / candidate |
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


def test_memory_and_share_of_the_roofline_are_shown() -> None:
    tags = {"shape": "8x4", "dtype": "bfloat16", "pass": "full"}
    measured = [
        timed("candidate", 0.5, shape="8x4", **{"pass": "full"}),
        Measurement(name="roofline", unit="ratio", median=0.93, tags={**tags, "provider": "candidate"}),
        Measurement(name="peak", unit="bytes", median=500, tags={**tags, "provider": "candidate"}),
        Measurement(name="peak", unit="bytes", median=800, tags={**tags, "provider": "eager"}),
    ]
    assert measurement_tables([verdict(*measured)]) == snapshot(
        [
            """\
| shape | dtype | pass | candidate, ms | of copy bandwidth |
| --- | --- | --- | --- | --- |
| 8x4 | bfloat16 | full | 0.5 (0.495 – 0.505) | 93% |\
""",
            """\
| shape | dtype | pass | candidate, bytes | eager, bytes | eager / candidate |
| --- | --- | --- | --- | --- | --- |
| 8x4 | bfloat16 | full | 500 | 800 | 1.60x |\
""",
        ]
    )


def test_resources_of_a_kernel_are_one_row_an_architecture() -> None:
    def found(arch: str, what: str, unit: str, value: float) -> Measurement:
        tags = {"arch": arch, "kernel": "_f", "shape": "1024 columns", "num_warps": "4"}
        return Measurement(name=f"{what} _f 1024 columns", unit=unit, median=value, tags=tags)

    parts = [
        found(arch, *one)
        for arch in ("sm_80", "sm_90")
        for one in (("registers", "registers", 32), ("spill", "bytes", 0), ("shared memory", "bytes", 16))
    ]
    assert measurement_tables([verdict(*parts)]) == snapshot(
        [
            """\
| arch | kernel | shape | registers | spill, bytes | shared memory, bytes |
| --- | --- | --- | --- | --- | --- |
| `sm_80` | `_f` | `1024 columns` | 32 | 0 | 16 |
| `sm_90` | `_f` | `1024 columns` | 32 | 0 | 16 |\
"""
        ]
    )


def test_predictions_are_told_apart_and_can_be_left_out() -> None:
    tags = {"op": "relu", "shape": "8x4", "dtype": "bfloat16", "pass": "forward", "provider": "prediction"}
    moved = Measurement(
        name="predicted bytes forward relu 8x4 bfloat16", unit="bytes", median=134217728, tags=tags
    )
    floor = Measurement(name="predicted floor forward relu 8x4 bfloat16", unit="ms", median=0.0314, tags=tags)
    assert measurement_tables([verdict(moved, floor)]) == snapshot(
        [
            """\
| shape | dtype | pass | predicted bytes, bytes | predicted floor, ms |
| --- | --- | --- | --- | --- |
| `8x4` | `bfloat16` | `forward` | 134,217,728 | 0.0314 |\
"""
        ]
    )
    assert measurement_tables([verdict(moved, floor)], predictions=False) == []


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
