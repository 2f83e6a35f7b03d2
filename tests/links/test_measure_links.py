"""A machine's links, measured by real ranks on gloo: every operation, bounded, the same on all ranks."""

from __future__ import annotations

import pytest
import torch
from torch import distributed as dist

from otil_exp.links import Links
from otil_exp.links.link import WIRE_BYTES
from otil_exp.links.measure import measure_links
from ranks import run_ranks

SIZES = (1024, 4096, 16384)


def measured(rank: int, budget_s: float) -> Links:
    """What a rank was given; gloo takes operations in any state of the group, so another one must still fit."""
    links = measure_links("here", torch.device("cpu"), sizes=SIZES, repeats=3, budget_s=budget_s)
    dist.barrier()
    return links


@pytest.mark.ranks
def test_every_operation_is_measured_and_all_ranks_get_the_same() -> None:
    first, second = run_ranks(2, measured, 60.0)
    assert first == second
    assert {curve.operation for curve in first.curves} == set(WIRE_BYTES)
    for curve in first.curves:
        assert [size for size, _ in curve.points] == list(SIZES)
        assert all(seconds > 0 for _, seconds in curve.points)
        assert curve.world_size == 2
    assert first.measured
    assert first.host_s == 0
    assert "gloo" in first.source
    assert torch.__version__ in first.source


@pytest.mark.ranks
def test_sizes_that_would_take_too_long_are_left_out() -> None:
    """With no time at all, two sizes are left: a curve needs them."""
    for links in run_ranks(4, measured, 0.0):
        assert [len(curve.points) for curve in links.curves] == [2] * len(WIRE_BYTES)
        assert links.curves[0].world_size == 4
