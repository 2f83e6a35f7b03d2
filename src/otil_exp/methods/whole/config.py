"""Settings of methods whose ranks compute whole pictures."""

from __future__ import annotations

from dataclasses import dataclass

from otil_exp.config import MethodConfig


@dataclass
class WholeConfig(MethodConfig):
    """Every rank computes the whole picture."""

    halves_apart: bool = False
    """Whether two ranks compute half of the CFG batch each; false: one process computes everything."""
