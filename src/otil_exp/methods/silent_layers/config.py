"""Settings of patches with silent layers."""

from __future__ import annotations

from dataclasses import dataclass

from otil_exp.config import MethodConfig
from otil_exp.methods.selection import SelectionConfig


@dataclass
class SilentLayersConfig(MethodConfig):
    """Every rank computes a slice; after warm-up the layers' context stays as the last synchronous step left it."""

    noise_gather: bool = True
    """Whether all ranks gather the whole noise prediction after warm-up; off leaves a rank its own slice."""

    cfg_repair: bool = False
    """Whether the two ranks of a slice exchange their halves of the noise prediction (needs noise_gather=false)."""

    gn_sync: bool | str = False
    """Whether GroupNorm stays synchronised while convolutions and attention are silent. false; true, a collective a
    layer; or fused, one collective a step with the peers' statistics of the step before."""

    transmit: SelectionConfig | None = None
    """Which latent blocks are exchanged after each step (needs noise_gather=false)."""
