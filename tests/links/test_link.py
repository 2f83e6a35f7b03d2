"""Seconds of an operation on a link: what nccl-tests' formulas and straight lines give by hand."""

from __future__ import annotations

import pytest

from otil_exp.links import Curve, Links


def links(*curves: Curve, host_s: float = 0.0) -> Links:
    return Links(name="l", source="by hand", date="2026-01-01", measured=False, curves=curves, host_s=host_s)


GATHER = Curve("all_gather", 2, ((0, 10e-6), (1_000_000, 110e-6)))
"""10 microseconds + bytes / 10 GB/s."""


@pytest.mark.parametrize(
    ("size", "seconds"), [(0, 10e-6), (500_000, 60e-6), (1_000_000, 110e-6), (10_000_000, 1.01e-3)]
)
def test_a_curve_of_two_points_is_latency_and_bandwidth(size: int, seconds: float) -> None:
    assert GATHER.seconds(size) == pytest.approx(seconds)


def test_a_measured_curve_is_met_at_its_points_and_straight_between() -> None:
    curve = Curve("all_gather", 2, ((4096, 70e-6), (16384, 60e-6), (65536, 100e-6)))
    assert [curve.seconds(size) for size in (1, 4096, 10240, 16384, 40960, 65536)] == pytest.approx(
        [70e-6, 70e-6, 65e-6, 60e-6, 80e-6, 100e-6]
    )


def test_a_curve_that_falls_at_its_end_never_goes_below_its_last_point() -> None:
    assert Curve("all_gather", 2, ((1000, 70e-6), (2000, 60e-6))).seconds(1e9) == pytest.approx(60e-6)


@pytest.mark.parametrize(
    ("operation", "size", "ranks", "on_wire"),
    [
        ("all_gather", 1_000_000, 2, 1_000_000),
        ("all_gather", 1_000_000, 4, 3_000_000),
        ("all_reduce", 1_000_000, 2, 1_000_000),
        ("all_reduce", 1_000_000, 4, 1_500_000),
        ("broadcast", 1_000_000, 4, 1_000_000),
        ("point_to_point", 1_000_000, 2, 1_000_000),
    ],
)
def test_an_operation_without_a_curve_takes_what_its_bytes_on_the_wire_take(
    operation: str, size: int, ranks: int, on_wire: int
) -> None:
    assert links(GATHER).seconds(operation, size, ranks) == pytest.approx(10e-6 + on_wire / 10e9)


def test_a_curve_of_its_own_comes_first_and_then_the_nearest_number_of_ranks() -> None:
    four = Curve("all_gather", 4, ((0, 1e-3), (1_000_000, 1e-3)))
    reduced = Curve("all_reduce", 8, ((0, 2e-3), (1_000_000, 2e-3)))
    found = links(GATHER, four, reduced)
    assert found.seconds("all_gather", 0, 2) == pytest.approx(10e-6)
    assert found.seconds("all_gather", 0, 8) == pytest.approx(1e-3)
    assert found.seconds("all_reduce", 0, 2) == pytest.approx(2e-3)


def test_the_hosts_call_is_not_the_wires() -> None:
    assert links(GATHER, host_s=4e-6).seconds("all_gather", 0, 2) == pytest.approx(6e-6)
    assert links(GATHER, host_s=40e-6).seconds("all_gather", 0, 2) == 0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"operation": "gather"}, "use one of all_gather"),
        ({"world_size": 1}, "at least 2 ranks"),
        ({"points": ((0, 1e-6),)}, "at least two sizes"),
        ({"points": ((2, 1e-6), (1, 1e-6))}, "rising"),
        ({"points": ((0, -1e-6), (1, 1e-6))}, "at least 0"),
        ({"points": ((0, 1e-6), (1, float("nan")))}, "at least 0"),
    ],
)
def test_a_curve_that_says_nothing_is_refused(change: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Curve(**({"operation": "all_gather", "world_size": 2, "points": ((0, 1e-6), (1, 1e-6))} | change))
