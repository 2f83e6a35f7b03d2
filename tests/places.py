"""A rank's place and groups, for ranks that tests/ranks.py started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import distributed as dist

from otil_exp import fake_peers
from otil_exp.topology import RankContext, Topology, among_groups


def place(rank: int, *, split_batch: bool) -> RankContext:
    """This rank of a topology over all started ranks; every rank must call it."""
    topology = Topology(world_size=dist.get_world_size(), split_batch=split_batch)
    return among_groups(topology, rank, torch.device("cpu"))


def place_without_peers(rank: int = 0, world_size: int = 1, split_batch: bool = False) -> RankContext:
    """A rank's place without any group: enough to build, not to communicate."""
    topology = Topology(world_size=world_size, split_batch=split_batch)
    return RankContext(topology=topology, rank=rank, device=torch.device("cpu"))


@contextmanager
def among_fake_peers(world_size: int = 2) -> Iterator[RankContext]:
    """Rank 0 of so many slices; torch's fake process group answers for its peers with what it sent itself."""
    yield fake_peers.among_fake_peers(Topology(world_size=world_size, split_batch=False), torch.device("cpu"))
    dist.destroy_process_group()
