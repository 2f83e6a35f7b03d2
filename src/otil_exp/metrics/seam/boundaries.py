"""Where the slices of a picture meet."""

from __future__ import annotations

from dataclasses import dataclass

MIN_SLICE = 8
"""Thinnest slice that can be measured, in pixels: one row of the latent."""


@dataclass(frozen=True, kw_only=True)
class Boundaries:
    """Seams of a picture: `rows` between rows y - 1 and y, `columns` between columns x - 1 and x, in pixels."""

    rows: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()

    @property
    def labels(self) -> list[str]:
        """What the values of a metric belong to, in their order: rows, then columns."""
        return [f"row {y}" for y in self.rows] + [f"column {x}" for x in self.columns]


def boundaries(size: int, slices: int) -> list[int]:
    """First row of every slice but the first, of `slices` equal ones in `size` pixels."""
    if size % slices:
        raise ValueError(f"{size} pixels do not divide over {slices} slices")
    return list(range(size // slices, size, size // slices))
