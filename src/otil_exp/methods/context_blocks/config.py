"""Settings of patches that exchange the layer context of some blocks."""

from __future__ import annotations

from dataclasses import dataclass, field

from otil_exp.choices import Halos, Overlap, ScoreOn
from otil_exp.config import MethodConfig
from otil_exp.methods.selection import SelectionConfig


@dataclass
class ContextConfig(SelectionConfig):
    """The layer context of which blocks of a slice crosses the wire each step (OTIL; CVPR 2026 paper)."""

    score_on: ScoreOn = ScoreOn.latent
    """What is compared: the latent, or K/V of a self-attention layer."""

    halos: Halos = Halos.chosen
    """Whose boundary rows of convolutions are sent along."""

    every: int = 1
    """Blocks are sent after every so many steps."""

    overlap: Overlap = Overlap.none
    """Whether it is used in the next step or, travelling while that one computes, in the one after."""


@dataclass
class ContextBlocksConfig(MethodConfig):
    """Every rank computes a slice; blocks of the layers' context are exchanged, the noise prediction is gathered."""

    gn_sync: bool | str = False
    """Whether GroupNorm stays synchronised while convolutions and attention exchange a few blocks: false or true."""

    order: int = 0
    """Forecast of the peers' context: 0 as it came last, 1 a line through the last two times a block came."""

    context: ContextConfig = field(default_factory=ContextConfig)
    """Which blocks."""
