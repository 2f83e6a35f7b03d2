"""Settings of tensor parallelism."""

from __future__ import annotations

from dataclasses import dataclass, field

from otil_exp.choices import StaleSums, TensorLayers
from otil_exp.config import MethodConfig


@dataclass
class TensorConfig(MethodConfig):
    """Every rank holds a part of every layer's weights."""

    stale: StaleSums | None = None
    """What the layers of stale_layers add up after warm-up instead of waiting; null waits."""

    stale_layers: list[TensorLayers] = field(default_factory=list)
    """Which layers do not wait for their sum: some of attention, feed_forward, convolution."""

    order: int = 0
    """Forecast of what they add up late: 0 as it was, 1 a line through the last two."""
