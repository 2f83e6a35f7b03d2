"""Settings of methods that send some blocks of a slice, and no more."""

from __future__ import annotations

from dataclasses import dataclass

from otil_exp.choices import Against


@dataclass
class SelectionConfig:
    """Which blocks of a slice cross the wire each step (OTIL)."""

    block_size: int = 8
    """Side of a square block, in latent pixels."""

    score: str = "cosine"
    """How a block's change is measured; a name of otil_exp.exchange.SCORES."""

    against: Against = Against.previous_step
    """What a block is compared with."""

    polling: bool = True
    """Unvisited blocks first, so that every block is sent within ceil(K / k) steps; false: highest score only."""
