"""All GroupNorm statistics of a step in one collective."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import distributed as dist

from otil_exp.rank_unet.sliced.groupnorm import SlicedGroupNorm


class StatisticsExchange:
    """Gathers what the layers left in `fresh` after a step, into what they find in `stale` in the next."""

    def __init__(self, norms: Sequence[SlicedGroupNorm], slices: int, group: dist.ProcessGroup | None) -> None:
        """norms: layers that were called once, with equal numbers of groups. group: the slices, in their order."""
        self._norms, self._group = norms, group
        self._own = torch.stack([norm.fresh for norm in norms])  # (layers, 2, n, groups)
        self._stale = self._own.new_zeros((slices, *self._own.shape))
        for index, norm in enumerate(norms):
            norm.register_buffer("stale", self._stale[:, index], persistent=False)
        self._handle: dist.Work | None = None

    def send(self) -> None:
        """Start the exchange; it travels while the scheduler step runs."""
        torch.stack([norm.fresh for norm in self._norms], out=self._own)
        self._handle = dist.all_gather(list(self._stale.unbind(0)), self._own, group=self._group, async_op=True)

    def wait(self) -> None:
        """Finish the exchange under way, if there is one."""
        if self._handle is not None:
            self._handle.wait()
            self._handle = None
