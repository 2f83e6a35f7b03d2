"""Settings of the fold."""

from __future__ import annotations

from dataclasses import dataclass, field

from otil_exp.config import MethodConfig


@dataclass
class FoldConfig(MethodConfig):
    """Every rank of a half computes a stage of the UNet on whole pictures; phases are shifted."""

    order: int = 1
    """Forecast of what the inner part made of an earlier latent: 0 as it is, 1 a line through two, 2 a parabola."""

    gain: str = "age"
    """How much of the forecast's change is used: a number; age, 1 for one step and 0.5 for more; fit, by least squares
    on the synchronous steps."""

    every: int = 1
    """The inner part computes every so-manieth latent, in as many steps: it may then be as many times larger."""

    cut: list[str] = field(default_factory=list)
    """Where the stages meet, outermost first: OUTSIDE/INSIDE, the last unit before the inner part and the last one of
    it, such as down1.down/up0.attn1.4. Empty balances the FLOPs at the cell's size."""
