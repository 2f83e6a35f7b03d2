"""Where the layer context of a block lies: which elements of every layer's K/V and halo rows belong to it.

A layer sees the slice at 1 / f of the latent's resolution; one of its *cells* (a token, a pixel) covers f x f latent
pixels. Where a block covers whole cells, it owns them. Where a cell is larger than a block (a small block at a low
resolution), the blocks under the cell share its channels: each owns an equal part of them, of K and of V alike, so
that heads stay whole as long as there are enough of them. Either way every element belongs to one block and every block
owns equally many, so that k blocks are k / K of the context, whatever was chosen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from otil_exp.exchange.blocks import BlockGrid


@dataclass(frozen=True)
class IndexMap:
    """Positions of every block's elements in a flat buffer, in runs of equally many neighbours."""

    rows: Tensor
    """(blocks, runs) int64: the buffer seen as (-1, run), these rows of it belong to the block."""

    run: int
    """Elements of a run."""


def edge_blocks(grid: BlockGrid) -> list[int]:
    """The blocks that touch the top or bottom row of the slice, where the halos of its neighbours come from."""
    columns = grid.width // grid.block_size
    return sorted({*range(columns), *range(grid.count - columns, grid.count)})


def check_blocks(grid: BlockGrid, lowest: int) -> None:
    """Raise ValueError for blocks that cut through cells. lowest: latent pixels a side of the UNet's largest cell."""
    small, large = sorted((grid.block_size, lowest))
    if large % small:
        divisors = ", ".join(str(size) for size in range(1, lowest) if lowest % size == 0)
        raise ValueError(
            f"block_size={grid.block_size} cuts through the cells of {lowest}x{lowest} latent pixels of the lowest "
            f"resolution: use block_size={divisors} or a multiple of {lowest}"
        )


def split_budget(grid: BlockGrid, k: int) -> tuple[int, int]:
    """How many of k blocks are edge blocks and how many inner ones, in proportion: fixed, so that shapes are.

    Edge blocks bring halo rows along and inner ones do not, and a collective needs to know its size beforehand.
    Raises ValueError for a k that leaves one of them none.
    """
    edges = len(edge_blocks(grid))
    if edges == grid.count:
        return k, 0
    k_edge = math.floor(k * edges / grid.count + 0.5)
    k_edge = min(max(k_edge, 1), edges)
    if k_edge >= k:
        raise ValueError(
            f"k={k} of {grid.count} blocks of layer context: a step sends blocks at the slice's edge and inner ones, "
            "in proportion; use k.budget=2 or more, or preset.context.halos=all"
        )
    return k_edge, k - k_edge


def map_keys_values(grid: BlockGrid, shapes: Sequence[Sequence[int]]) -> IndexMap:
    """Map self-attention's K/V, layers one after the other, to all blocks. shapes: (b, tokens, 2 c), K before V."""
    cells = [_Cells.of_tokens(grid, shape[1]) for shape in shapes]
    run = math.gcd(*(shape[2] // (2 * cell.sharers) for shape, cell in zip(shapes, cells, strict=True)))
    owners = [_token_owners(grid, shape, cell, run) for shape, cell in zip(shapes, cells, strict=True)]
    return _grouped(torch.cat(owners), grid.count, run)


def map_halos(grid: BlockGrid, shapes: Sequence[Sequence[int]]) -> IndexMap:
    """Map convolutions' boundary rows, layers one after the other, to the edge blocks, in the order of `edge_blocks`.

    shapes: (2, b, C, rows, w), the top side before the bottom side. A row belongs to the outermost blocks alone.
    """
    cells = [_Cells.of_width(grid, shape[4]) for shape in shapes]
    run = math.gcd(*(max(grid.block_size // cell.factor, 1) for cell in cells))
    owners = [_halo_owners(grid, shape, cell, run) for shape, cell in zip(shapes, cells, strict=True)]
    return _grouped(torch.cat(owners), len(edge_blocks(grid)), run)


@dataclass(frozen=True)
class _Cells:
    """The cells of one layer."""

    rows: int
    columns: int
    factor: int
    """Latent pixels a side of a cell, f."""
    across: int
    """Blocks a side of a cell; 1 where a block covers whole cells."""

    @property
    def sharers(self) -> int:
        """Blocks that share a cell."""
        return self.across**2

    @classmethod
    def of_width(cls, grid: BlockGrid, columns: int) -> _Cells:
        factor = grid.width // columns
        fits = factor * columns == grid.width and grid.rows % factor == 0
        assert fits, f"{columns} columns are not a layer of {grid}"
        return cls(grid.rows // factor, columns, factor, max(factor // grid.block_size, 1))

    @classmethod
    def of_tokens(cls, grid: BlockGrid, tokens: int) -> _Cells:
        cells = cls.of_width(grid, math.isqrt(tokens * grid.width // grid.rows))
        assert cells.rows * cells.columns == tokens, f"{tokens} tokens are not a layer of {grid}"
        return cells


def _token_owners(grid: BlockGrid, shape: Sequence[int], cells: _Cells, run: int) -> Tensor:
    """Owner of every run of a layer's K/V (b, tokens, 2 c), flat."""
    batch, _, channels = shape
    part = _part_of(channels // 2, cells.sharers, run).repeat(2)  # K's channels, then V's
    row = _block_at(cells.rows, cells, grid)[:, None, None] + part // cells.across
    column = _block_at(cells.columns, cells, grid)[:, None] + part % cells.across
    owners = row * (grid.width // grid.block_size) + column
    return owners.flatten().repeat(batch)


def _halo_owners(grid: BlockGrid, shape: Sequence[int], cells: _Cells, run: int) -> Tensor:
    """Owner (position in edge_blocks) of every run of a layer's boundary rows (2, b, C, rows, w), flat."""
    _, batch, channels, rows, _ = shape
    part = _part_of(channels, cells.across, 1)
    column = _block_at(cells.columns, cells, grid)[::run] + part[:, None]  # (C, w / run)
    top = column[None, :, None].expand(batch, -1, rows, -1)
    bottom = top + len(edge_blocks(grid)) - grid.width // grid.block_size
    return torch.stack([top, bottom]).flatten()


def _part_of(channels: int, sharers: int, run: int) -> Tensor:
    """Which of the sharers owns each run of channels."""
    if channels % sharers:
        raise ValueError(
            f"{sharers} blocks share a cell's {channels} channels, which do not divide: use a larger preset.context."
            "block_size"
        )
    return torch.arange(channels // run) * run * sharers // channels


def _block_at(count: int, cells: _Cells, grid: BlockGrid) -> Tensor:
    """The first block, along one direction, under each of `count` cells."""
    return torch.arange(count) * cells.factor // grid.block_size


def _grouped(owners: Tensor, blocks: int, run: int) -> IndexMap:
    """Turn the owner of each run into each block's runs, ascending."""
    counts = owners.bincount(minlength=blocks)
    assert (counts == counts[0]).all(), "every block owns equally many elements"
    return IndexMap(owners.argsort(stable=True).view(blocks, -1), run)
