"""Collectives and bytes, counted where they happen."""

from __future__ import annotations

import pytest
import torch
from torch import distributed as dist

from otil_exp.traffic import Message, Traffic, TrafficCounter
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


def messages_counted(rank: int) -> list[tuple[int, int]]:
    """(operations, bytes) of 100 fp32 by each way of sending it, on both ends; groups given by position."""
    counter, taken = TrafficCounter(), []
    pair = dist.new_group([0, 1])
    own = torch.zeros(100)
    peer = 1 - rank
    with counter.installed():
        if rank == 0:
            dist.send(own, 1)
            dist.isend(own, 1, pair).wait()
        else:
            dist.recv(own, 0)
            dist.irecv(own, 0, pair).wait()
        taken.append(counter.take())
        swap = [dist.P2POp(dist.isend, own, peer), dist.P2POp(dist.irecv, torch.zeros(100), peer)]
        for work in dist.batch_isend_irecv(swap):
            work.wait()
        taken.append(counter.take())
        dist.broadcast(own, 0)
        dist.broadcast(own, group_src=1, group=pair)
        taken.append(counter.take())
        dist.all_reduce(own, dist.ReduceOp.SUM, pair)
        taken.append(counter.take())
    return [(traffic.collectives, traffic.bytes_sent) for traffic in taken]


@pytest.mark.ranks
def test_messages_count_for_who_sends_them() -> None:
    """Two messages of 400 B from rank 0; a swap is one operation; each is once the source of a broadcast."""
    first, second = run_ranks(2, messages_counted)
    assert first == [(2, 800), (1, 400), (2, 400), (1, 400)]
    assert second == [(2, 0), (1, 400), (2, 400), (1, 400)]


def operations_counted(rank: int) -> list[dict[Message, int]]:
    """What is kept of collectives of 1000 fp16, waited for or not, recorded and replayed twice, and of messages."""
    counter, taken = TrafficCounter(), []
    own, pair = torch.zeros(1000, dtype=torch.float16), dist.new_group([0, 1])
    parts = [torch.empty_like(own) for _ in range(2)]
    with counter.installed():
        dist.all_gather(parts, own)
        dist.all_gather(parts, own)
        dist.all_gather_into_tensor(torch.empty(2000, dtype=torch.float16), own, group=pair, async_op=True).wait()
        dist.all_reduce(own)
        taken.append(dict(counter.take().messages))
        with counter.recording() as graph:
            dist.all_reduce(own, async_op=True).wait()
        counter.add(graph)
        counter.add(graph)
        taken.append(dict(counter.take().messages))
        swap = [dist.P2POp(dist.isend, own[:600], 1 - rank), dist.P2POp(dist.irecv, torch.zeros(600).half(), 1 - rank)]
        for work in dist.batch_isend_irecv(swap):
            work.wait()
        one_way = dist.P2POp(dist.isend, own, 1) if rank == 0 else dist.P2POp(dist.irecv, own, 0)
        for work in dist.batch_isend_irecv([one_way]):
            work.wait()
        taken.append(dict(counter.take().messages))
    return taken


@pytest.mark.ranks
def test_operations_are_kept_by_size_and_by_whether_they_are_waited_for() -> None:
    """Who sends alone goes on while it travels; who receives waits."""
    collectives = {
        Message("all_gather", 2, 2000, True): 2,
        Message("all_gather", 2, 2000, False): 1,
        Message("all_reduce", 2, 2000, True): 1,
    }
    replayed, swap = {Message("all_reduce", 2, 2000, False): 2}, {Message("point_to_point", 2, 1200, True): 1}
    first, second = run_ranks(2, operations_counted)
    assert first == [collectives, replayed, swap | {Message("point_to_point", 2, 2000, False): 1}]
    assert second == [collectives, replayed, swap | {Message("point_to_point", 2, 2000, True): 1}]


def grouped_by_position(rank: int) -> int:
    """Bytes of 10 fp32 gathered in a pair of four ranks, the group given by position."""
    counter = TrafficCounter()
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    own = torch.zeros(10)
    with counter.installed():
        dist.all_gather([torch.zeros(10) for _ in range(2)], own, pairs[rank // 2])
    return counter.take().bytes_sent


@pytest.mark.ranks
def test_a_group_given_by_position_is_the_group() -> None:
    assert run_ranks(4, grouped_by_position) == [40] * 4


def test_what_nobody_has_said_how_to_count_is_refused() -> None:
    with TrafficCounter().installed(), pytest.raises(RuntimeError, match="reduce_scatter_tensor was called while"):
        dist.reduce_scatter_tensor(torch.zeros(1), torch.zeros(2))


def test_every_collective_of_torch_is_counted_or_refused() -> None:
    """By their names in torch.distributed: a new one has to be thought of."""
    known = ("all_", "gather", "reduce", "broadcast", "scatter", "send", "recv", "isend", "irecv", "batch_isend")
    none = {"reduce_op", "is_"}
    names = [
        name
        for name in dist.distributed_c10d.__all__
        if name.startswith(known) and name not in none and callable(getattr(dist, name, None))
    ]
    originals = {name: getattr(dist, name) for name in names}
    with TrafficCounter().installed():
        assert [name for name in names if getattr(dist, name) is originals[name]] == []
