"""A rank alone: torch's fake process group plays its peers, which answer at once with what it sent itself."""

from __future__ import annotations

import torch
from torch import distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from otil_exp.topology import RankContext, Topology, among_groups, single_rank


def among_fake_peers(topology: Topology, device: torch.device, *, rank: int = 0) -> RankContext:
    """A rank of a topology; all topologies of several ranks in one process have as many of them.

    Its groups have the names that they have among real ranks, and so have graphs that hold their collectives.
    """
    if topology.world_size == 1:
        return single_rank(device)
    if not dist.is_initialized():
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=topology.world_size)
    assert dist.get_world_size() == topology.world_size, "a process has one process group"
    return among_groups(topology, rank, device)
