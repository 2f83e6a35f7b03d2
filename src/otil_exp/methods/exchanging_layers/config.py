"""Settings of patches whose layers exchange context."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from omegaconf import MISSING

from otil_exp.config import MethodConfig


class SyncMode(StrEnum):
    """What the layers exchange after warm-up (names of distrifuser)."""

    full_sync = "full_sync"
    """Everything, blocking."""
    corrected_async_gn = "corrected_async_gn"
    """Everything one step late; GroupNorm statistics corrected by the rank's own change."""
    stale_gn = "stale_gn"
    """Everything one step late; own GroupNorm statistics fresh, the others' stale."""
    sync_gn = "sync_gn"
    """Convolutions and attention one step late, GroupNorm blocking."""
    separate_gn = "separate_gn"
    """Convolutions and attention one step late, GroupNorm over the own slice."""


@dataclass
class ExchangingLayersConfig(MethodConfig):
    """Every rank computes a slice of the picture, and its layers exchange context in every step (DistriFusion)."""

    sync_mode: SyncMode = MISSING
    """What the layers exchange after warm-up."""

    order: int = 0
    """Forecast of the peers' K/V and halos that are a step late: 0 as they are, 1 a line through the last two."""
