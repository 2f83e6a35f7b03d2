"""Which rank computes what: rank <-> (batch half, slice), process groups, device of a rank."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import distributed as dist


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Where the ranks stand: batch halves first, slices in rank order within a half.

    With split_batch the first world_size / 2 ranks hold the unconditional half of the CFG batch and the others the
    conditional half (as DistriConfig in distrifuser/utils.py). Slices are horizontal, equal, in rank order.
    """

    world_size: int
    """Ranks of the run."""

    split_batch: bool
    """Whether the two CFG halves go to different ranks."""

    def __post_init__(self) -> None:
        if self.world_size < 1:
            raise ValueError(f"topology.world_size={self.world_size}: a run has at least one rank")
        if self.split_batch and self.world_size % 2:
            raise ValueError(
                f"topology.world_size={self.world_size} with topology.split_batch=true: the two halves of the batch "
                f"need an even number of ranks; use "
                f"topology.world_size={self.world_size + 1} or topology.split_batch=false"
            )

    @property
    def name(self) -> str:
        """What a user types: 1gpu, 4gpu_split, 4gpu_nosplit."""
        return f"{self.world_size}gpu" + ("" if self.world_size == 1 else "_split" if self.split_batch else "_nosplit")

    @property
    def halves(self) -> int:
        """Batch halves that live on different ranks: 2 with split_batch, else 1."""
        return 2 if self.split_batch else 1

    @property
    def slices(self) -> int:
        """Slices of the picture, N in the papers."""
        return self.world_size // self.halves

    def batch_half(self, rank: int) -> int:
        """0: unconditional half (or the whole batch without split), 1: conditional half."""
        return rank // self.slices

    def slice_index(self, rank: int) -> int:
        """Position of the rank's slice from the top, 0 .. slices - 1."""
        return rank % self.slices

    def batch_ranks(self, batch_half: int) -> list[int]:
        """Ranks that hold the slices of one batch half, in slice order."""
        return list(range(batch_half * self.slices, (batch_half + 1) * self.slices))

    def pair_ranks(self, slice_index: int) -> list[int]:
        """Ranks that hold the same slice in the two halves: unconditional first (one rank without split)."""
        return [slice_index + half * self.slices for half in range(self.halves)]


@dataclass(frozen=True, kw_only=True)
class RankContext:
    """One rank of a running job: its place, its device and the groups it talks in."""

    topology: Topology
    rank: int
    device: torch.device
    batch_group: dist.ProcessGroup | None = None
    """The slices of this rank's batch half; None when there is one slice."""
    pair_group: dist.ProcessGroup | None = None
    """This slice in both batch halves; None without split_batch."""

    @property
    def batch_half(self) -> int:
        return self.topology.batch_half(self.rank)

    @property
    def slice_index(self) -> int:
        return self.topology.slice_index(self.rank)

    @property
    def is_main(self) -> bool:
        """Rank 0 alone writes shared files."""
        return self.rank == 0


def single_rank(device: torch.device) -> RankContext:
    """Context of a run without other ranks: no process group is made."""
    return RankContext(topology=Topology(world_size=1, split_batch=False), rank=0, device=device)


def device_of(device_kind: str, local_rank: int) -> torch.device:
    """Device of a rank: its own GPU by *local* rank (cuda), the first GPU for all (shared_gpu), or the CPU.

    A scheduler that shows each task one GPU only leaves it visible as cuda:0, whatever the local rank is.
    """
    if device_kind == "cpu":
        return torch.device("cpu")
    if device_kind == "shared_gpu" or torch.cuda.device_count() == 1:
        return torch.device("cuda", 0)
    return torch.device("cuda", local_rank)


ALL_VISIBLE = "OTIL_EXP_ALL_VISIBLE"
"""What CUDA_VISIBLE_DEVICES would be on a rank that sees its own GPU only."""


def see_one_gpu(local_rank: int) -> None:
    """Leave this process the GPU of its local rank alone, as cuda:0, so that compiled code, which names its GPU, is the
    same on all ranks. Does nothing where there is one anyway, or where CUDA is in use, which looks once."""
    count = torch.cuda.device_count()
    if count <= max(local_rank, 1) or torch.cuda.is_initialized():
        return
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(count)))
    os.environ[ALL_VISIBLE] = visible
    os.environ["CUDA_VISIBLE_DEVICES"] = visible.split(",")[local_rank].strip()


def join(topology: Topology, device_kind: str, timeout_s: float, *, sees_one_gpu: bool = False) -> RankContext:
    """Join the process group that RANK, WORLD_SIZE, LOCAL_RANK and MASTER_* describe, and make the run's groups.

    device_kind: "cuda" (NCCL, one GPU a rank), "shared_gpu" (gloo, all ranks on one GPU) or "cpu" (gloo).
    timeout_s: bound on every collective, in seconds. sees_one_gpu: of several ranks with a GPU each, see `see_one_gpu`.
    Raises RuntimeError when the process already has a group (a process hosts one run: upstream's DistriConfig would
    silently fall back to one GPU here) or when WORLD_SIZE contradicts the topology.
    """
    rank, local_rank = int(os.environ.get("RANK", 0)), int(os.environ.get("LOCAL_RANK", 0))
    if sees_one_gpu and device_kind == "cuda" and topology.world_size > 1:
        see_one_gpu(local_rank)
    device = device_of(device_kind, local_rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    started = int(os.environ.get("WORLD_SIZE", 1))
    if started != topology.world_size:
        raise RuntimeError(f"{started} processes were started for a topology of {topology.world_size} ranks")
    if dist.is_initialized():
        raise RuntimeError("this process already has a process group: every run needs fresh processes")
    if topology.world_size == 1:
        return single_rank(device)
    backend = "nccl" if device_kind == "cuda" else "gloo"
    bound = timedelta(seconds=timeout_s)
    # After a time-out NCCL's watchdog waits four times this for a dump that nobody reads: 60 s more by default.
    os.environ.setdefault("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "1000")
    dist.init_process_group(backend, timeout=bound)
    return among_groups(topology, rank, device, bound)


def among_groups(topology: Topology, rank: int, device: torch.device, bound: timedelta | None = None) -> RankContext:
    """Make the groups of a run, in which every rank must take part, within the process group of all ranks.

    bound: of every collective in them; None: torch's default, 30 minutes.
    """
    batch_group = _own_group(rank, [topology.batch_ranks(half) for half in range(topology.halves)], bound)
    pair_group = _own_group(rank, [topology.pair_ranks(index) for index in range(topology.slices)], bound)
    return RankContext(topology=topology, rank=rank, device=device, batch_group=batch_group, pair_group=pair_group)


def meet() -> None:
    """Wait for the other ranks, if there are any."""
    if dist.is_initialized():
        # NCCL's barrier is a sum on some GPU: on this rank's own one, and without a warning, if it is told which.
        own = [torch.cuda.current_device()] if dist.get_backend() == "nccl" else None
        dist.barrier(device_ids=own)


def leave() -> None:
    """Leave the process group, if there is one, together: whoever goes first would take the connections along."""
    meet()
    if dist.is_initialized():
        dist.destroy_process_group()


def _own_group(rank: int, members: list[list[int]], bound: timedelta | None) -> dist.ProcessGroup | None:
    """Make all groups (every rank must take part) and return the one this rank belongs to; None if it is alone.

    bound: of every collective in them. They do not inherit that of the group of all ranks: torch's default is 30 min.
    """
    own: dist.ProcessGroup | None = None
    for ranks in members:
        if len(ranks) > 1:
            group = dist.new_group(ranks, timeout=bound)
            own = group if isinstance(group, dist.ProcessGroup) and rank in ranks else own
    return own


def resolve_device(device_kind: str, world_size: int) -> str:
    """Settle device=auto, and check that this machine has what the ranks need; under a scheduler, its share of them.

    Raises ValueError naming the alternatives when there are too few GPUs.
    """
    local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", world_size))
    gpus = torch.cuda.device_count()
    if device_kind == "auto":
        # One visible GPU for several ranks is not enough: sharing it must be asked for, as its times mean nothing.
        device_kind = "cuda" if gpus else "cpu"
    if device_kind in ("cuda", "shared_gpu") and not gpus:
        raise ValueError(f"device={device_kind}: no GPU is visible; use device=cpu")
    shared = f"use device=shared_gpu (exact pictures, meaningless times), device=cpu, or a topology of {gpus}"
    if device_kind == "cuda" and gpus < local_ranks and not (gpus == 1 and "LOCAL_WORLD_SIZE" in os.environ):
        raise ValueError(
            f"device=cuda: {local_ranks} ranks need {local_ranks} GPUs here and {gpus} are visible; {shared}"
        )
    return device_kind
