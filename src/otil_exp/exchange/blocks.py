"""Cut a slice into equal square blocks, and say how many of them a budget buys."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class BlockGrid:
    """The blocks of a slice, numbered row by row from the top left.

    Raises ValueError when the blocks do not tile the slice.
    """

    rows: int
    """Height of the slice, in latent pixels."""

    width: int
    """Width of the slice, in latent pixels."""

    block_size: int
    """Side of a block, in latent pixels."""

    def __post_init__(self) -> None:
        if self.rows < 1 or self.width < 1:
            raise ValueError(f"a slice of {self.rows}x{self.width} latent pixels is empty: use a larger picture")
        if self.block_size < 1 or self.rows % self.block_size or self.width % self.block_size:
            fitting = _divisors(math.gcd(self.rows, self.width))
            raise ValueError(
                f"block_size={self.block_size} does not tile a slice of {self.rows}x{self.width} latent pixels "
                f"(it must divide both): use block_size={_alternatives(fitting)}"
            )

    @property
    def count(self) -> int:
        """Blocks of a slice, K in OTIL's paper."""
        return (self.rows // self.block_size) * (self.width // self.block_size)

    def split(self, latents: Tensor, out: Tensor | None = None) -> Tensor:
        """Copy latents (1, C, rows, width) into their blocks (K, C, b, b), same dtype: new ones, or those of `out`."""
        b = self.block_size
        batch, channels, rows, width = latents.shape
        assert (batch, rows, width) == (1, self.rows, self.width), f"{tuple(latents.shape)} is not a slice of {self}"
        tiles = latents.view(channels, rows // b, b, width // b, b).permute(1, 3, 0, 2, 4)
        # Always a copy: the scheduler may go on writing into latents whose blocks are remembered.
        blocks = latents.new_empty(self.count, channels, b, b) if out is None else out
        blocks.view(tiles.shape).copy_(tiles)
        return blocks

    def join(self, blocks: Tensor) -> Tensor:
        """Copy blocks (K, C, b, b) back into latents (1, C, rows, width): the inverse of split, bit for bit."""
        b = self.block_size
        channels = blocks.shape[1]
        assert blocks.shape == (self.count, channels, b, b), f"{tuple(blocks.shape)} are not the blocks of {self}"
        tiles = blocks.view(self.rows // b, self.width // b, channels, b, b).permute(2, 0, 3, 1, 4)
        return tiles.clone(memory_format=torch.contiguous_format).view(1, channels, self.rows, self.width)


def resolve_budget(budget: float, count: int) -> int:
    """Blocks to send a step, k: the budget itself if >= 1, a fraction of the `count` blocks of a slice if < 1.

    A fraction rounds to the nearest number of blocks (halves up), at least one; infinity stands for all blocks.
    Raises ValueError for what is not 1..count blocks.
    """
    rule = (
        f"a step sends 1 to {count} blocks of a slice: use a count such as k=k16 or k.budget=12, "
        "or a fraction such as k=quarter or k.budget=0.25"
    )
    if not budget > 0:  # also what is not a number
        raise ValueError(f"k.budget={budget:g} sends no block; {rule}")
    if budget < 1:
        return max(1, math.floor(budget * count + 0.5))
    if math.isinf(budget):
        return count
    if budget != int(budget):
        raise ValueError(f"k.budget={budget:g} is neither a count nor a fraction below 1; {rule}")
    if budget > count:
        raise ValueError(f"k.budget={budget:g} is more than the {count} blocks of a slice; {rule}")
    return int(budget)


def _divisors(number: int) -> list[int]:
    return [candidate for candidate in range(1, number + 1) if number % candidate == 0]


def _alternatives(values: list[int]) -> str:
    """Read a list aloud: "1, 2 or 4"."""
    *others, last = (str(value) for value in values)
    return f"{', '.join(others)} or {last}" if others else last
