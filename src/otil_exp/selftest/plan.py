"""On what is tried, and what a part found."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class State(StrEnum):
    """How a part of the machine is."""

    fine = "fine"
    slow = "slow"
    """It works, and what to do about its speed is said."""
    broken = "broken"
    """It does not work, or not within its bound: the machine is not fit."""
    left_out = "left out"
    """There is nothing here to try it on."""


CURVE = ", ms by bytes"
"""End of the names of figures that are curves."""


@dataclass(frozen=True)
class Finding:
    """What a part found."""

    state: State
    sentence: str
    """For the user: what is fine; or what is slow or broken, and what to do."""

    figures: dict[str, Any] = field(default_factory=dict)
    """What was measured: plain values, units in the names."""

    seconds: float = 0.0
    """How long the part took."""


class LeftOutError(Exception):
    """Why a part cannot be tried on this machine."""


LINKS_FILE = "links.yaml"
"""Of the plan's folder: where the part collectives leaves what it measured, as `otil_exp.links` reads it."""


@dataclass(frozen=True)
class Plan:
    """On what is tried."""

    device: str
    """cpu or cuda."""

    world_size: int
    """GPUs; on a CPU ranks."""

    folder: Path
    """For files of the parts."""

    @property
    def ranks(self) -> int:
        """Ranks that talk to each other: at least two, which share a GPU where there is only one."""
        return max(2, self.world_size)

    @property
    def kind(self) -> str:
        """Where these ranks compute, as `device=` of otil-exp says it."""
        return "shared_gpu" if self.device == "cuda" and self.world_size == 1 else self.device
