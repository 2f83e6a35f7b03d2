"""What methods have in common whose ranks compute stages of a UNet: its units, and what is said of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache

from otil_exp.config import ExperimentConfig
from otil_exp.exchange.timetable import Timetable, ages
from otil_exp.methods.method import Depth
from otil_exp.models.architecture import architecture_of
from otil_exp.schedule import Step, schedule
from otil_exp.stages.cut import stage_flops
from otil_exp.stages.tape import Unit, tape
from otil_exp.stages.wiring import Segment

LayOut = Callable[[Sequence[Step]], Timetable]
"""From the steps of a picture to who does what in them."""

EXAMPLE_STEPS = 24
"""Enough for ages to have settled, whatever the stages."""


def units_of(config: ExperimentConfig) -> tuple[Unit, ...]:
    """The units of the cell's UNet at its size. Raises ValueError for a UNet that cannot be cut."""
    architecture = architecture_of(config.model)
    settings = json.dumps(dict(architecture.unet), default=list)
    return _units(settings, config.height // architecture.vae_factor, config.width // architecture.vae_factor)


@lru_cache(maxsize=64)
def _units(settings: str, height: int, width: int) -> tuple[Unit, ...]:
    return tape(json.loads(settings), height, width)


def depth_of(units: Sequence[Unit], segments: Sequence[Segment], timetable: Timetable) -> Depth:
    """What is said of a UNet cut into these segments, whose stages keep this timetable."""
    flops = stage_flops(units, segments)
    return Depth(
        shares=tuple(one / sum(flops) for one in flops),
        ends=tuple(units[segment.stop - 1].name for segment in segments[:-1]),
        ages=ages(timetable),
    )


def stages_in_words(units: Sequence[Unit], segments: Sequence[Segment], lay_out: LayOut) -> str:
    """For the record: how the work is shared out, and how old what a prediction rests on may be."""
    flops = stage_flops(units, segments)
    shares = ", ".join(f"{100 * one / sum(flops):.1f}" for one in flops)
    oldest = max(ages(lay_out(schedule(EXAMPLE_STEPS, 0))))
    ends = ", ".join(units[one.stop - 1].name for one in segments[:-1])
    old = f"up to {oldest} step{'s' if oldest > 1 else ''} old"
    return f"{len(flops)} stages of {shares} % of the FLOPs, cut after {ends}; {old}"
