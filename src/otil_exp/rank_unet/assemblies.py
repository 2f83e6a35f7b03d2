"""From this rank's output to the noise prediction that its scheduler step uses.

An assembly takes the rank's output (b / halves, 4, h, w) and the step, and returns a new tensor (b, 4, H, W), the
unconditional half first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import distributed as dist

from otil_exp.exchange.codec import Codec
from otil_exp.schedule import Step
from otil_exp.topology import RankContext

Repair = Callable[[torch.Tensor, int, dist.ProcessGroup | None], torch.Tensor]
"""(own half of a slice (1, 4, h, W), batch half, pair) -> both halves of the slice (2, 4, h, W)."""


class Assembly(Protocol):
    def __call__(self, local: torch.Tensor, step: Step) -> torch.Tensor: ...


class GatherSlices:
    """One all_gather over the world: slices side by side, then the halves."""

    def __init__(
        self, ranks: RankContext, dim: Callable[[int], int] = lambda counter: 2, codec: Codec | None = None
    ) -> None:
        """dim: dimension along which the slices of a step lie side by side, given the step's counter. codec: for steps
        that are not synchronous; every rank then takes its own slice, too, as the others received it."""
        self._ranks, self._topology = ranks, ranks.topology
        self._dim, self._codec = dim, codec
        self._held: list[torch.Tensor] = []  # every rank's prediction of the step before

    def __call__(self, local: torch.Tensor, step: Step) -> torch.Tensor:
        local = local.contiguous()
        parts = self._gathered(local) if self._codec is None or step.synchronous else self._coded(local, self._codec)
        self._held = parts if self._codec is not None else []
        halves = [
            torch.cat([parts[rank] for rank in self._topology.batch_ranks(half)], dim=self._dim(step.counter))
            for half in range(self._topology.halves)
        ]
        return torch.cat(halves)

    def _gathered(self, own: torch.Tensor) -> list[torch.Tensor]:
        parts = [torch.empty_like(own) for _ in range(self._topology.world_size)]
        dist.all_gather(parts, own)
        return parts

    def _coded(self, local: torch.Tensor, codec: Codec) -> list[torch.Tensor]:
        own = local - self._held[self._ranks.rank] if codec.residual else local
        received = self._gathered(codec.encode(own.flatten()))
        parts = [codec.decode(encoded, local.numel(), local.dtype).view_as(local) for encoded in received]
        return [held + part for held, part in zip(self._held, parts, strict=True)] if codec.residual else parts


class GatherHalves:
    """One all_gather over the pair: tensor parallelism, where a rank has all of its half."""

    def __init__(self, ranks: RankContext) -> None:
        self._group = ranks.pair_group

    def __call__(self, local: torch.Tensor, step: Step) -> torch.Tensor:
        halves = [torch.empty_like(local, memory_format=torch.contiguous_format) for _ in range(2)]
        dist.all_gather(halves, local.contiguous(), group=self._group)
        return torch.cat(halves)


def mean_over(local: torch.Tensor, ranks: RankContext) -> torch.Tensor:
    """Mean of the predictions of a half's ranks, by one all_reduce: the same on all of them. Same shape and dtype."""
    total = local.contiguous()
    dist.all_reduce(total, group=ranks.batch_group)
    return total / ranks.topology.slices


class KeepOwnSlice:
    """After warm-up only the own slice is renewed; the rest stays as the last synchronous step gathered it.

    With the batch split and no repair, the other half of the own slice stays too, so that guidance mixes a fresh half
    with a stale one.
    """

    def __init__(self, ranks: RankContext, repair: Repair | None) -> None:
        """repair: renews both halves of the own slice; None leaves the other rank's half stale."""
        self._ranks = ranks
        self._repair = repair
        self._gather = GatherSlices(ranks)
        self._held: torch.Tensor | None = None

    def __call__(self, local: torch.Tensor, step: Step) -> torch.Tensor:
        if step.synchronous or step.kind == "refresh":
            self._held = self._gather(local, step)
        else:
            assert self._held is not None, "a picture starts with a synchronous step"
            self._renew(self._held, local)
        return self._held.clone()

    def _renew(self, held: torch.Tensor, local: torch.Tensor) -> None:
        ranks, rows = self._ranks, local.shape[2]
        own = held[:, :, ranks.slice_index * rows : (ranks.slice_index + 1) * rows]
        if not ranks.topology.split_batch:
            own.copy_(local)
        elif self._repair is not None:
            own.copy_(self._repair(local, ranks.batch_half, ranks.pair_group))
        else:
            own[ranks.batch_half].copy_(local[0])
