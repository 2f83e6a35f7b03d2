"""Settings of step reuse."""

from __future__ import annotations

from dataclasses import dataclass

from otil_exp.config import MethodConfig


@dataclass
class StepReuseConfig(MethodConfig):
    """Every rank of a half computes one step of a round, all at once."""

    order: int = 0
    """Forecast of the prediction that a rank gets to its step with: 0 the last one, 1 a line through the last two."""
