"""How old each block of the layer context is, and how far the line through its last two values is followed."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from otil_exp.exchange.context_map import IndexMap


class Forecast(Protocol):
    """What layers read instead of the buffers: the line through a value and the one before it."""

    before: list[Tensor | None]
    """Of each slice (n,), what the buffers held until a value was renewed; None for this rank's own."""

    ahead: list[Tensor]
    """Of each slice (n / run, 1): how far now lies beyond a value, in distances of it and the one before."""

    def by_runs(self, run: int) -> None:
        """Make `ahead`, of zeros; from now on whoever renews runs keeps `before` outside of synchronous steps."""


class BlockLines:
    """The ages of the blocks of one kind of layers, of every slice; no step of it waits for the device."""

    def __init__(self, forecast: Forecast, buffers: Tensor, index_map: IndexMap) -> None:
        """buffers: (slices, n), as received. index_map: which runs of them belong to which block."""
        self._forecast, self._buffers, self._map = forecast, buffers, index_map
        forecast.by_runs(index_map.run)
        blocks = (len(buffers), len(index_map.rows))
        self._last, self._before = (torch.empty(blocks, device=buffers.device) for _ in range(2))  # steps
        self.forget()

    def forget(self) -> None:
        """Nothing has come yet."""
        self._last.fill_(-torch.inf)
        self._before.fill_(-torch.inf)

    def all_came(self, step: int) -> None:
        """The layers exchange everything in this step, and remember what they had before."""
        self._before.copy_(self._last)
        self._last.fill_(step)

    def comes(self, rank: int, blocks: Tensor, rows: Tensor, made: int) -> None:
        """Blocks of a slice (k,), made in a step, are about to overwrite their runs `rows` of its buffer."""
        before = self._forecast.before[rank]
        assert before is not None, "a rank's own context is not forecast"
        held = self._buffers[rank].view(-1, self._map.run)
        before.view(-1, self._map.run).index_copy_(0, rows, held.index_select(0, rows))
        self._before[rank].index_copy_(0, blocks, self._last[rank].index_select(0, blocks))
        self._last[rank].index_fill_(0, blocks, made)

    def look_ahead(self, step: int) -> None:
        """Tell the layers how far a step lies beyond each run: at most as far as its last two values are apart.

        Without a bound the line of a block that nobody chooses would lead ever further away.
        """
        ahead = ((step - self._last) / (self._last - self._before)).clamp(max=1)  # 0 where no value was before
        for of_slice, told in zip(ahead, self._forecast.ahead, strict=True):
            runs = of_slice.to(told.dtype)[:, None].expand(self._map.rows.shape)
            told.index_copy_(0, self._map.rows.flatten(), runs.reshape(-1, 1))
