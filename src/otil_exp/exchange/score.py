"""How informative is a block: the score by which blocks are chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


def cosine_dissimilarity(now: Tensor, before: Tensor) -> Tensor:
    """Score how much each block turned: 1 - cos, in [0, 2]; never NaN (OTIL, CVPR 2026).

    now, before: (K, C, b, b) blocks of a slice at this step and before, float32 or narrower. Returns (K,) float32.
    A block whose norm is zero, or beyond float32, scores 0.
    """
    # All in float32: an fp16 block of values above 256 overflows when squared.
    a, b = now.flatten(1).float(), before.flatten(1)
    norms = torch.linalg.vector_norm(a, dim=1) * torch.linalg.vector_norm(b, dim=1, dtype=torch.float32)
    # Not 1 - cos: this is NaN for norms of zero and of infinity alike, and each operation is a kernel.
    return ((norms - (a * b).sum(dim=1)) / norms).nan_to_num(0.0).clamp(0, 2)


def l2_distance(now: Tensor, before: Tensor) -> Tensor:
    """Score how far each block moved, as a share of the block that moved furthest: in [0, 1]; never NaN."""
    moved = torch.linalg.vector_norm(now.flatten(1).float() - before.flatten(1).float(), dim=1)
    moved = moved.nan_to_num(0.0, posinf=torch.finfo(moved.dtype).max)
    return moved / moved.amax().clamp(min=torch.finfo(moved.dtype).tiny)


def round_robin(now: Tensor, before: Tensor) -> Tensor:
    """Score by position alone, first block first: with polling, every block in turn."""
    return torch.linspace(1, 0, len(now), device=now.device)


class RandomScore:
    """Score by chance, the same chances in every picture: what does the choice itself bring?"""

    def __init__(self) -> None:
        self._chance: torch.Generator | None = None

    def __call__(self, now: Tensor, before: Tensor) -> Tensor:
        if self._chance is None:
            self._chance = torch.Generator(now.device).manual_seed(0)
        return torch.rand(len(now), generator=self._chance, device=now.device)


Measure = Callable[[Tensor, Tensor], Tensor]
"""(now, before), each (K, C, b, b), to (K,) float32 within [0, 10): polling adds 10 to what was not sent yet."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """A way of telling how informative blocks are."""

    make: Callable[[], Measure]
    """Called anew at each synchronous step, so that every picture is by itself."""

    blind: bool = False
    """Looks at neither: what a block would be compared with does not matter."""

    repeats: bool = True
    """Computes the same from the same blocks, so that a recorded graph may be replayed."""

    needs_polling: bool = False
    """Gives the same blocks the highest score for ever."""


SCORES = {
    "cosine": Score(make=lambda: cosine_dissimilarity),
    "l2": Score(make=lambda: l2_distance),
    "random": Score(make=RandomScore, blind=True, repeats=False),
    "round_robin": Score(make=lambda: round_robin, blind=True, needs_polling=True),
}
"""Scores by the name a user types."""
