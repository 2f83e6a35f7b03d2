"""Where the slices of a picture meet."""

from __future__ import annotations

from dataclasses import dataclass

from otil_exp.choices import SplitScheme

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


def method_boundaries(height: int, width: int, slices: int, split_scheme: SplitScheme | None) -> Boundaries:
    """Seams that a method may leave in a picture of height x width pixels.

    slices: parts of the picture on different ranks, 1 for methods that do not cut it (reference, tensor).
    split_scheme: which way naive_patch cuts (alternate: both ways); None for methods that cut rows.
    """
    cuts_rows, cuts_columns = (
        split_scheme is not SplitScheme.col,
        split_scheme in (SplitScheme.col, SplitScheme.alternate),
    )
    return Boundaries(
        rows=tuple(boundaries(height, slices)) if cuts_rows else (),
        columns=tuple(boundaries(width, slices)) if cuts_columns else (),
    )
