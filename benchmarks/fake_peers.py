"""Rank 0 alone: torch's fake process group plays its peers, which answer at once with what it sent itself."""

from __future__ import annotations

import torch
from torch import distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from otil_exp.topology import RankContext, Topology, single_rank


def rank_0(topology: Topology, device: torch.device) -> RankContext:
    """Rank 0 of a topology; all topologies of several ranks in one process have as many of them."""
    if topology.world_size == 1:
        return single_rank(device)
    if not dist.is_initialized():
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=topology.world_size)
    assert dist.get_world_size() == topology.world_size, "a process has one process group"
    return RankContext(
        topology=topology,
        rank=0,
        device=device,
        batch_group=dist.new_group(topology.batch_ranks(0)) if topology.slices > 1 else None,
        pair_group=dist.new_group(topology.pair_ranks(0)) if topology.split_batch else None,
    )
