"""Exchange the layer context of the k most informative blocks of each slice: OTIL as the CVPR 2026 paper reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch import distributed as dist

from otil_exp.choices import Against, Halos, Overlap, ScoreOn
from otil_exp.exchange.block_lines import BlockLines, Forecast
from otil_exp.exchange.blocks import BlockGrid
from otil_exp.exchange.codec import Codec
from otil_exp.exchange.context_map import IndexMap, edge_blocks, map_halos, map_keys_values, split_budget
from otil_exp.exchange.polling import Polling
from otil_exp.exchange.score import SCORES

_ALIGNMENT = 16
"""Bytes; what is received is looked at through wider types."""


class HeldContext(Protocol):
    """The context of some layers, one after the other in flat buffers."""

    shapes: Sequence[Sequence[int]]
    """Of each layer, for one slice."""

    buffers: Tensor
    """(slices, n): every slice's context as this rank knows it; its own as the others know it."""

    fresh: Tensor
    """(n,): this rank's context of this step."""

    forecast: Forecast | None
    """Where layers read a forecast of the buffers."""


@dataclass(frozen=True)
class Selection:
    """How the blocks to send are chosen."""

    k: int
    """Blocks a step."""
    score: str = "cosine"
    """A name in SCORES."""
    against: Against = Against.previous_step
    """A block is compared with itself at the previous step or as it was last sent."""
    polling: bool = True
    """Every block once a round (Polling)."""
    score_on: ScoreOn = ScoreOn.latent
    """What is compared: the latent that the UNet got, or K/V of its first, middle or last self-attention layer."""
    halos: Halos = Halos.chosen
    """Whose boundary rows of convolutions go along: those of chosen blocks at the edge, or all of them every time."""


class ContextExchange:
    """What a rank knows of the other slices' layer context, and how it renews k blocks of it a step.

    Around every step of the UNet call `before_step` and `after_step`. In a synchronous step the layers themselves
    exchange everything. After any other step the k blocks of the own slice that changed most are chosen once, and
    their context in all layers (K/V, and halo rows of blocks at the edge) goes out in one asynchronous collective from
    one flat buffer; remote context elsewhere stays as it was. The host never waits for the device to choose.
    """

    def __init__(
        self,
        grid: BlockGrid,
        keys_values: HeldContext,
        halos: HeldContext,
        selection: Selection,
        *,
        slice_index: int,
        slices: int,
        overlap: Overlap = Overlap.none,
        every: int = 1,
        codec: Codec | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        """Set up the exchange of one rank.

        grid: blocks of a slice of the latent. slice_index, slices: this rank's slice, counted from the top, and how
        many there are. overlap: none, what was sent after a step is used in the next one, as DistriFusion's context is;
        step, it travels while the next one computes and is used in the one after. every: blocks are sent after every so
        many steps that are not synchronous. group: the ranks of the slices of
        one batch half, in slice order. Raises ValueError for settings that do not fit the layers.
        """
        assert 0 <= slice_index < slices
        assert slices > 1, "there is nobody to talk to"
        self._grid, self._selection, self._overlap = grid, selection, overlap
        self._index, self._slices, self._group = slice_index, slices, group
        self._codec = codec or Codec()
        self._every, self._silent = every, 0  # steps since something was sent
        device = keys_values.fresh.device
        keys_values_map = map_keys_values(grid, keys_values.shapes)
        self._parts = [
            _Part(keys_values, keys_values_map, device),
            _Part(halos, map_halos(grid, halos.shapes), device),
        ]
        self._lines = [
            BlockLines(part.held.forecast, part.held.buffers, part.map)
            for part in self._parts
            if part.held.forecast is not None
        ]
        self._watched = _watched_layer(grid, keys_values, selection.score_on, device)
        edges = edge_blocks(grid)
        self._every_edge = torch.arange(len(edges), device=device)
        inner = [block for block in range(grid.count) if block not in edges]
        strata = (edges, inner) if selection.halos is Halos.chosen else (range(grid.count),)
        self._strata = [torch.tensor(list(blocks), dtype=torch.int64, device=device) for blocks in strata]
        self._budgets = split_budget(grid, selection.k) if selection.halos is Halos.chosen else (selection.k,)
        self._before: Tensor | None = None  # what the next step's blocks are compared with
        self._under_way: tuple[Any, Tensor, int] | None = None
        self._step = -1

    def begin(self) -> None:
        """A picture begins: nothing that was made in the one before tells how this one goes on."""
        self._step = -1
        for lines in self._lines:
            lines.forget()

    def before_step(self, synchronous: bool) -> None:
        """Take in what is due before the layers read it; a synchronous step is not to be overwritten later."""
        self._step += 1
        if synchronous or self._overlap is Overlap.none:
            self.receive()
        for lines in self._lines:
            if synchronous:
                lines.all_came(self._step)
            else:
                lines.look_ahead(self._step)

    def after_step(self, latents: Tensor, synchronous: bool, *, is_read: bool = True) -> None:
        """Choose and send after a step.

        latents: (b, C, H, W) that the UNet got; both halves of a batch hold the same. is_read: whether any step reads
        what would be sent before a synchronous one renews it; else nothing is.
        """
        if synchronous:
            self._remember(latents)
            return
        self.receive()
        self._silent += 1
        if self._silent < self._every or not is_read:
            return
        self._silent = 0
        chosen = self._choose(self._blocks(latents, synchronous))
        self._send(chosen)

    def receive(self) -> None:
        """Wait for what is under way, and put it where the layers read it."""
        if self._under_way is None:
            return
        handle, collected, made = self._under_way
        self._under_way = None
        if handle is not None:
            handle.wait()
        for rank, wire in enumerate(collected):
            if rank != self._index or self._codec.residual:  # what the peers hold of this rank matters to residuals
                self._unpack(rank, wire, made)

    def _remember(self, latents: Tensor) -> None:
        self._silent = 0
        self._before = self._blocks(latents, synchronous=True)
        self._score = SCORES[self._selection.score].make()
        self._rounds = [
            Polling(len(blocks), enabled=self._selection.polling, device=blocks.device) for blocks in self._strata
        ]

    def _blocks(self, latents: Tensor, synchronous: bool) -> Tensor:
        """What tells whether a block changed, copied: (K, C, b, b) of the latent, or (K, n, 1, 1) of a layer."""
        if self._watched is None:
            rows = self._grid.rows
            return self._grid.split(latents[:1].narrow(2, self._index * rows, rows))
        return self._watched.blocks(self._index if synchronous else None)

    def _choose(self, blocks: Tensor) -> list[Tensor]:
        """Positions of the chosen blocks in each stratum: edge blocks and inner ones, or all alike."""
        assert self._before is not None, "a picture starts with a synchronous step"
        scores = self._score(blocks, self._before)
        chosen = [
            rounds.choose(scores[stratum], k) if k else stratum[:0]
            for rounds, stratum, k in zip(self._rounds, self._strata, self._budgets, strict=True)
        ]
        if self._selection.against is Against.previous_step:
            self._before = blocks
        else:
            sent = self._numbers(chosen)
            self._before.index_copy_(0, sent, blocks.index_select(0, sent))
        return chosen

    def _numbers(self, chosen: Sequence[Tensor]) -> Tensor:
        """Block numbers of positions in the strata, (k,)."""
        return torch.cat([stratum[positions] for stratum, positions in zip(self._strata, chosen, strict=True)])

    def _owners(self, chosen: Sequence[Tensor]) -> list[Tensor]:
        """For K/V and for halos, whose runs are sent: blocks, and positions among the edge blocks."""
        return [self._numbers(chosen), self._every_edge if self._selection.halos is Halos.all else chosen[0]]

    def _rows(self, chosen: Sequence[Tensor]) -> list[Tensor]:
        """For K/V and for halos, the runs of what is sent."""
        owners = self._owners(chosen)
        return [part.map.rows[one].flatten() for part, one in zip(self._parts, owners, strict=True)]

    def _send(self, chosen: Sequence[Tensor]) -> None:
        """Pack the context of the chosen blocks and hand it to all peers, without waiting."""
        rows = self._rows(chosen)
        values = self._gathered(rows, [part.held.fresh for part in self._parts])
        if self._codec.residual:
            values = values - self._gathered(rows, [part.held.buffers[self._index] for part in self._parts])
        wire = _aligned(torch.cat([torch.cat(list(chosen)).view(torch.uint8), self._codec.encode(values)]))
        collected = wire.new_empty((self._slices, len(wire)))
        # What is read next does not travel behind anything, and is counted so (otil_exp.traffic).
        later = self._overlap is Overlap.step
        handle = dist.all_gather(list(collected.unbind(0)), wire, group=self._group, async_op=later)
        self._under_way = (handle, collected, self._step)

    def _unpack(self, rank: int, wire: Tensor, made: int) -> None:
        """Put the blocks of one rank into its buffers. made: in which step."""
        k = sum(self._budgets)
        positions = wire[: 8 * k].view(torch.int64)
        chosen = positions.split(list(self._budgets))
        rows = self._rows(chosen)
        if self._lines and rank != self._index:
            for lines, owners, indices in zip(self._lines, self._owners(chosen), rows, strict=True):
                lines.comes(rank, owners, indices, made)
        buffers = [part.held.buffers[rank] for part in self._parts]
        counts = [len(indices) * part.map.run for indices, part in zip(rows, self._parts, strict=True)]
        dtype = buffers[0].dtype
        encoded = wire[8 * k :][: self._codec.size(sum(counts), dtype)]
        values = self._codec.decode(encoded, sum(counts), dtype)
        if self._codec.residual:
            values = values + self._gathered(rows, buffers)
        for part, buffer, indices, own in zip(self._parts, buffers, rows, values.split(counts), strict=True):
            buffer.view(-1, part.map.run).index_copy_(0, indices, own.view(-1, part.map.run))

    def _gathered(self, rows: Sequence[Tensor], buffers: Sequence[Tensor]) -> Tensor:
        """Runs of K/V and halo buffers (n,), side by side in one flat tensor."""
        packed = [
            buffer.view(-1, part.map.run).index_select(0, indices).flatten()
            for part, buffer, indices in zip(self._parts, buffers, rows, strict=True)
        ]
        return torch.cat(packed)


class _Part:
    """The context of one kind of layers, and where each block's lies in it."""

    def __init__(self, held: HeldContext, index_map: IndexMap, device: torch.device) -> None:
        self.held = held
        self.map = IndexMap(index_map.rows.to(device), index_map.run)


@dataclass(frozen=True)
class _Watched:
    """One layer's K/V, looked at block by block."""

    part: _Part
    start: int
    end: int

    def blocks(self, slice_index: int | None) -> Tensor:
        """(K, n, 1, 1) of this step, or as the buffers of a slice have it."""
        held = self.part.held
        flat = (held.fresh if slice_index is None else held.buffers[slice_index])[self.start : self.end]
        rows = flat.view(-1, self.part.map.run).index_select(0, self.part.map.rows.flatten())
        return rows.view(*self.part.map.rows.shape[:1], -1, 1, 1)


def _watched_layer(grid: BlockGrid, held: HeldContext, score_on: ScoreOn, device: torch.device) -> _Watched | None:
    """The layer to choose by; None for the latent."""
    if score_on is ScoreOn.latent:
        return None
    layers = len(held.shapes)
    layer = {ScoreOn.first_attention: 0, ScoreOn.middle_attention: layers // 2, ScoreOn.last_attention: layers - 1}[
        score_on
    ]
    sizes = [torch.Size(shape).numel() for shape in held.shapes]
    start = sum(sizes[:layer])
    part = _Part(held, map_keys_values(grid, [held.shapes[layer]]), device)
    return _Watched(part, start, start + sizes[layer])


def _aligned(wire: Tensor) -> Tensor:
    return torch.nn.functional.pad(wire, (0, -len(wire) % _ALIGNMENT))
