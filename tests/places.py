"""A rank's place and groups, for ranks that tests/ranks.py started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import distributed as dist

from benchmarks.fake_peers import rank_0
from otil_exp.topology import RankContext, Topology


def place(rank: int, *, split_batch: bool) -> RankContext:
    """This rank of a topology over all started ranks; every rank must call it."""
    topology = Topology(world_size=dist.get_world_size(), split_batch=split_batch)
    batch = [dist.new_group(topology.batch_ranks(half)) for half in range(topology.halves)]
    pairs = [dist.new_group(topology.pair_ranks(index)) for index in range(topology.slices)]
    return RankContext(
        topology=topology,
        rank=rank,
        device=torch.device("cpu"),
        batch_group=batch[topology.batch_half(rank)] if topology.slices > 1 else None,
        pair_group=pairs[topology.slice_index(rank)] if split_batch else None,
    )


def place_without_peers(rank: int = 0, world_size: int = 1, split_batch: bool = False) -> RankContext:
    """A rank's place without any group: enough to build, not to communicate."""
    topology = Topology(world_size=world_size, split_batch=split_batch)
    return RankContext(topology=topology, rank=rank, device=torch.device("cpu"))


@contextmanager
def among_fake_peers(world_size: int = 2) -> Iterator[RankContext]:
    """Rank 0 of so many slices; torch's fake process group answers for its peers with what it sent itself."""
    yield rank_0(Topology(world_size=world_size, split_batch=False), torch.device("cpu"))
    dist.destroy_process_group()
