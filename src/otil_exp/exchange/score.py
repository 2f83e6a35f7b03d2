"""How informative is a block: the score by which blocks are chosen."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def cosine_dissimilarity(now: Tensor, before: Tensor) -> Tensor:
    """Score how much each block turned: 1 - cos, in [0, 2]; never NaN (guide section 4.1, CVPR 2026 paper).

    now, before: (K, C, b, b) blocks of a slice at this step and before, any floating dtype. Returns (K,) float32.
    A block whose norm is zero, or beyond float32, scores 0.
    """
    # float32 first: an fp16 block of values above 256 overflows when squared.
    a, b = now.flatten(1).float(), before.flatten(1).float()
    norms = torch.linalg.vector_norm(a, dim=1) * torch.linalg.vector_norm(b, dim=1)
    score = (1 - (a * b).sum(dim=1) / norms).clamp(0, 2)
    return torch.where((norms > 0) & norms.isfinite(), score, torch.zeros_like(score))


Score = Callable[[Tensor, Tensor], Tensor]
"""(now, before), each (K, C, b, b), to (K,) float32 within [0, 10): polling adds 10 to what was not sent yet."""

SCORES: dict[str, Score] = {"cosine": cosine_dissimilarity}
"""Scores by the name a user types."""
