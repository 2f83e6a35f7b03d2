"""Settings of naive patches."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from omegaconf import MISSING

from otil_exp.config import MethodConfig


class SplitScheme(StrEnum):
    """Which way the picture is cut."""

    row = "row"
    col = "col"
    alternate = "alternate"
    """Rows on even steps, columns on odd ones."""


@dataclass
class NaivePatchConfig(MethodConfig):
    """Every rank computes its part as if it were a picture of its own."""

    split_scheme: SplitScheme = MISSING
    """Which way the picture is cut."""
