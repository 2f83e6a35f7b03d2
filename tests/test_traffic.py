"""Collectives and bytes, counted where they happen."""

from __future__ import annotations

import pytest
import torch
from torch import distributed as dist

from otil_exp.traffic import Traffic, TrafficCounter
from ranks import run_ranks


def counted(rank: int) -> list[tuple[int, int]]:
    """(collectives, bytes) of 1000 fp16 gathered twice, then 8 fp32 reduced in a pair: called, recorded, replayed."""
    counter, taken = TrafficCounter(), []
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    pair = pairs[rank // 2]
    own = torch.zeros(1000, dtype=torch.float16)
    with counter.installed():
        dist.all_gather([torch.empty_like(own) for _ in range(4)], own)
        taken.append(counter.take())
        dist.all_gather_into_tensor(torch.empty(4000, dtype=torch.float16), own, async_op=True).wait()
        taken.append(counter.take())
        dist.all_reduce(torch.zeros(8), group=pair)
        taken.append(counter.take())
        with counter.recording() as graph:
            dist.all_reduce(torch.zeros(8), group=pair)
        taken.append(counter.take())
        counter.add(graph)
        counter.add(graph)
        taken.append(counter.take())
    dist.all_reduce(torch.zeros(8))
    taken.append(counter.take())
    return [(traffic.collectives, traffic.bytes_sent) for traffic in taken]


@pytest.mark.ranks
def test_bytes_are_what_a_rank_hands_to_its_peers() -> None:
    """2000 B to each of 3 peers; a ring all-reduce of 32 B between two sends 2 x 1/2 of it; outside, nothing."""
    expected = [(1, 6000), (1, 6000), (1, 32), (0, 0), (2, 64), (0, 0)]
    assert run_ranks(4, counted) == [expected] * 4


def test_the_functions_are_put_back() -> None:
    before = dist.all_gather
    with pytest.raises(KeyError), TrafficCounter().installed():
        assert dist.all_gather is not before
        raise KeyError
    assert dist.all_gather is before


def test_traffic_adds_up() -> None:
    total = Traffic(1, 10)
    total.add(Traffic(2, 5))
    assert total == Traffic(3, 15)
