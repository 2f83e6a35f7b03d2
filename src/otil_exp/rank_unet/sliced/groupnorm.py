"""GroupNorm of a slice: over the own rows, over all rows, or over all rows as they were a step ago."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from otil_exp.choices import GnSync
from otil_exp.rank_unet.sliced.layer import SlicedLayer
from otil_exp.rank_unet.sliced.slices import Slices, edge_rows
from otil_exp.rank_unet.statistics import affine, combined, corrected, slice_statistics


class SlicedGroupNorm(SlicedLayer):
    """Over all slices in a synchronous step; in a silent one as `gn_sync` says.

    With fused, one collective after a silent step brings to the layers what each has left (StatisticsExchange).
    """

    fresh: torch.Tensor
    """(2, n, groups): the own statistics of this step."""
    stale: torch.Tensor
    """(N, 2, n, groups): every slice's of the step before."""

    def __init__(self, norm: nn.GroupNorm, slices: Slices, gn_sync: GnSync) -> None:
        super().__init__()
        self.norm, self._slices, self._gn_sync = norm, slices, gn_sync

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (n, C, h, w). Returns the same shape and dtype."""
        if not self.synchronous and self._gn_sync is GnSync.off:
            alone: torch.Tensor = self.norm(x)
            return alone
        own = self._own(x)
        if self.synchronous or self._gn_sync is GnSync.exact:
            gathered = self._slices.gather(own)
            self._keep_all(gathered)
            statistics = combined(gathered)
        else:
            before = self.stale.index_select(0, self._slices.own)[0]
            statistics = corrected(self.stale, own, before)
        return _normalised([x], *affine(*statistics, self.norm))[0]

    def with_halos(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """In a synchronous step: x as forward returns it, and the rows next to it, by one collective for both.

        x: (n, C, h, w). Returns the same shape and (2, n, C, 1, w), in x's dtype; rows outside the picture are any.
        """
        assert self.synchronous
        statistics, edges = self._slices.gather_all([self._own(x), edge_rows(x)])
        self._keep_all(statistics)
        x, halos = _normalised([x, self._slices.halos(edges)], *affine(*combined(statistics), self.norm))
        return x, halos

    def _own(self, x: torch.Tensor) -> torch.Tensor:
        own = slice_statistics(x, self.norm.num_groups)
        if self._gn_sync is GnSync.fused:
            self._keep("fresh", own)
        return own

    def _keep_all(self, gathered: torch.Tensor) -> None:
        """Of a synchronous step, (N, 2, n, groups): what the next one corrects, so that nobody sends it again."""
        if self._gn_sync is GnSync.fused and hasattr(self, "stale"):
            self.stale.copy_(gathered)


def _normalised(parts: Sequence[torch.Tensor], shift: torch.Tensor, scale: torch.Tensor) -> list[torch.Tensor]:
    return [(shift + part * scale).to(part.dtype) for part in parts]
