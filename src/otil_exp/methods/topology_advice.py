"""How a user types a topology that a rule advises."""

from __future__ import annotations

from otil_exp.conf_tree import options
from otil_exp.topology import Topology


def typed(topology: Topology) -> str:
    """topology=4gpu_split, or its two settings where there is no such choice."""
    if topology.name in options("topology"):
        return f"topology={topology.name}"
    return f"topology.world_size={topology.world_size} topology.split_batch={str(topology.split_batch).lower()}"
