"""One colour and one marker a method, the same in every plot, page and dashboard."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#8C6D31")
"""Okabe and Ito's without black and yellow, which dark and light pages hide, and a brown."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")
"""As matplotlib names them. They go round after eight and colours after seven, so that 56 pairs differ."""

NEUTRAL = "#6b6b6b"
"""Of the reference, which is no method."""

IN_ORDER = (
    "otil",
    "distrifusion",
    "guide",
    "full_sync",
    "balanced",
    "naive_patch",
    "otil_context",
    "tensor",
    "tensor_stale",
    "batch_split",
)
"""The presets, so that those often shown together are the furthest apart; others get theirs from their names."""


@dataclass(frozen=True)
class MethodStyle:
    """How a method is drawn."""

    colour: str
    marker: str


def style_of(method: str, *, is_reference: bool = False) -> MethodStyle:
    """Colour and marker of a method, whatever else is shown."""
    if is_reference:
        return MethodStyle(NEUTRAL, "o")
    place = IN_ORDER.index(method) if method in IN_ORDER else len(IN_ORDER) + crc32(method.encode()) % 46
    return MethodStyle(COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)])
