"""Messages between real ranks: what is sent arrives, may be overwritten while it travels, and is bounded in time."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
import torch
from torch import distributed as dist

from otil_exp.exchange.messages import Incoming, Messages, Outgoing, Parcel
from ranks import run_ranks

pytestmark = pytest.mark.ranks

CPU = torch.device("cpu")
PAIR = Parcel(((2, 3), (4,)), torch.float32)


def swapping(rank: int) -> list[list[float]]:
    """Ten swaps of two tensors each, all sent from one pair of tensors that changes at once; what stays of them."""
    messages = Messages(None, CPU, depth=3)
    for giver in (0, 1):
        messages.register(("from", giver), PAIR, sends=rank == giver, receives=rank != giver)
    matrix, vector = torch.zeros(2, 3), torch.zeros(4)
    came: list[tuple[torch.Tensor, ...]] = []
    for turn in range(10):
        matrix.fill_(100 * rank + turn)
        vector.fill_(-turn)
        came += messages.swap(
            [Outgoing(("from", rank), 1 - rank, (matrix, vector))], [Incoming(("from", 1 - rank), 1 - rank)]
        )
        matrix.fill_(-1000)
    messages.finish()
    return [[one[0].mean().item(), one[1].mean().item()] for one in came[-3:]]


def test_the_last_messages_stay_and_senders_may_go_on() -> None:
    first, second = run_ranks(2, swapping)
    assert first == [[100 + turn, -turn] for turn in (7, 8, 9)]
    assert second == [[turn, -turn] for turn in (7, 8, 9)]


def one_way(rank: int) -> float:
    """Around a ring of three in a group of its own, given without being taken at the same time."""
    group = dist.new_group([0, 1, 2])
    messages = Messages(group, CPU)
    messages.meet()
    ring = Parcel(((5,),), torch.float64)
    after, before = (rank + 1) % 3, (rank - 1) % 3
    messages.register(("ring", rank), ring, sends=True)
    messages.register(("ring", before), ring, receives=True)
    messages.swap([Outgoing(("ring", rank), after, (torch.full((5,), rank + 0.5, dtype=torch.float64),))], [])
    ((came,),) = messages.swap([], [Incoming(("ring", before), before)])
    messages.finish()
    return came.mean().item()


def test_around_a_ring() -> None:
    assert run_ranks(3, one_way) == [2.5, 0.5, 1.5]


def waiting(rank: int) -> str:
    """Rank 0 waits for rank 1 of a group with a second's time-out; rank 1 sends nothing."""
    group = dist.new_group([0, 1], timeout=timedelta(seconds=1))
    messages = Messages(group, CPU)
    messages.register("it", Parcel(((1,),), torch.float32), sends=rank == 1, receives=rank == 0)
    if rank == 1:
        time.sleep(4)
        return ""
    with pytest.raises(TimeoutError) as error:
        messages.swap([], [Incoming("it", 1)])
    return str(error.value)


def test_a_message_that_does_not_come_ends_in_the_bound_and_names_the_rank() -> None:
    said, _ = run_ranks(2, waiting)
    assert "rank 1 did not send its message within" in said
    assert "launch.collective_timeout_s" in said
