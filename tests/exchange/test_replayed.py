"""A replayed exchange is the called one, by real ranks and a stand-in for CUDA graphs that repeats operations alone."""

import pytest
import torch

from emulated_graph import emulated_graphs
from otil_exp.choices import Against
from otil_exp.exchange import BlockGrid, LatentExchange, ReplayedExchange
from otil_exp.traffic import TrafficCounter
from ranks import run_ranks

GRID = BlockGrid(rows=8, width=20, block_size=4)
"""Ten blocks: with k=3 a round is four steps, and seven steps end in the middle of the second."""


def exact(step, slices):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(1, 4, slices * GRID.rows, GRID.width, generator=generator).half()


def two_pictures(exchange, traffic, slices):
    """What is known after each silent step of two pictures, the second after a refresh, and what each step sent."""
    known, sent = [], []
    with traffic.installed():
        for picture in (0, 100):
            exchange.remember(exact(picture, slices))
            for step in range(1, 8):
                traffic.take()
                known.append(exchange.step(exact(picture + step, slices)))
                sent.append(traffic.take())
            exchange.remember(exchange.finalize(exact(picture + 50, slices)))
            known.append(exchange.step(exact(picture + 51, slices)))
    return known, sent


def both(rank, slices, options):
    results = []
    for replayed in (False, True):
        traffic = TrafficCounter()
        exchange = LatentExchange(GRID, rank, slices, 3, **options)
        if replayed:
            exchange = ReplayedExchange(exchange, traffic, emulated_graphs(traffic))
            exchange.prepare(torch.zeros_like(exact(0, slices)))
        results.append(two_pictures(exchange, traffic, slices))
    return results


@pytest.mark.ranks
@pytest.mark.parametrize("slices", [2, 3])
@pytest.mark.parametrize(
    "options",
    [{}, {"against": Against.last_sent}, {"polling": False}, {"score": "l2"}, {"score": "round_robin"}],
    ids=str,
)
def test_a_replayed_exchange_is_the_called_one_with_its_traffic(slices, options):
    for (called, sent), (replayed, counted) in run_ranks(slices, both, slices, options):
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(replayed, called, strict=True))
        assert counted == sent
        assert len({known.data_ptr() for known in replayed}) == len(replayed)


@pytest.mark.parametrize(
    ("slices", "score", "replayable"), [(1, "cosine", False), (2, "random", False), (2, "cosine", True)]
)
def test_chances_and_one_slice_are_not_recorded(slices, score, replayable, monkeypatch):
    monkeypatch.setattr("torch.distributed.get_world_size", lambda group: slices)
    monkeypatch.setattr("torch.distributed.get_rank", lambda group: 0)
    assert LatentExchange(GRID, 0, slices, 3, score=score).replayable is replayable
