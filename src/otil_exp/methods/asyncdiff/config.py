"""Settings of AsyncDiff."""

from __future__ import annotations

from dataclasses import dataclass

from otil_exp.config import MethodConfig


@dataclass
class AsyncDiffConfig(MethodConfig):
    """Components in lockstep; as many as a half of the batch has ranks, or one less with stride=2."""

    stride: int = 1
    """Steps a round: 1, or 2, for which one more rank computes the outer component a second time."""
