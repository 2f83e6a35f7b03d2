"""What methods have in common whose ranks compute stages of a UNet: its units, and how many ranks it takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from otil_exp.config import ExperimentConfig
from otil_exp.exchange.timetable import Timetable, ages
from otil_exp.methods.method import Depth
from otil_exp.methods.topology_advice import typed
from otil_exp.models.architecture import architecture_of
from otil_exp.stages.cut import stage_flops
from otil_exp.stages.tape import Unit, tape
from otil_exp.stages.wiring import Segment
from otil_exp.topology import Topology


def units_of(config: ExperimentConfig) -> tuple[Unit, ...]:
    """The units of the cell's UNet at its size. Raises ValueError for a UNet that cannot be cut."""
    architecture = architecture_of(config.model)
    settings = json.dumps(dict(architecture.unet), default=list)
    return _units(settings, config.height // architecture.vae_factor, config.width // architecture.vae_factor)


@lru_cache(maxsize=64)
def _units(settings: str, height: int, width: int) -> tuple[Unit, ...]:
    return tape(json.loads(settings), height, width)


def check_ranks(name: str, topology: Topology) -> None:
    """Raise ValueError, with what to type, if a half of the batch has one rank: no depth to cut."""
    if topology.slices < 2:
        whole = replace(topology, split_batch=False)
        more = replace(topology, world_size=2 * topology.world_size, split_batch=True)
        raise ValueError(
            f"preset={name} with topology={topology.name}: a half of the batch has one rank, and a UNet is cut into "
            f"two stages or more; use {typed(whole)} or {typed(more)}"
        )


def depth_of(units: Sequence[Unit], segments: Sequence[Segment], timetable: Timetable) -> Depth:
    """What is said of a UNet cut into these segments, whose stages keep this timetable."""
    flops = stage_flops(units, segments)
    return Depth(
        shares=tuple(one / sum(flops) for one in flops),
        ends=tuple(units[segment.stop - 1].name for segment in segments[:-1]),
        ages=ages(timetable),
    )
