"""AsyncDiff's cuts of SDXL's UNet (its pipe_config.py), and which topologies they fit."""

from __future__ import annotations

from collections.abc import Sequence

from otil_exp.config import ExperimentConfig, MethodConfig
from otil_exp.exchange.timetable import Timetable, lockstep_timetable
from otil_exp.methods.asyncdiff.config import AsyncDiffConfig
from otil_exp.methods.method import Depth, Method
from otil_exp.methods.staged_rules import depth_of, units_of
from otil_exp.methods.topology_advice import typed
from otil_exp.methods.whole.rules import REFERENCE
from otil_exp.schedule import Step
from otil_exp.stages.tape import Unit
from otil_exp.stages.wiring import Segment, wires
from otil_exp.topology import Topology

COMPONENTS = (2, 3, 4)


class AsyncDiff(Method[AsyncDiffConfig]):
    """Two to four components."""

    shares_weights = False

    def comes_to(self, preset: AsyncDiffConfig, config: ExperimentConfig) -> MethodConfig:
        return REFERENCE if config.topology.world_size == 1 else preset

    def check(self, preset: AsyncDiffConfig, config: ExperimentConfig) -> None:
        if preset.stride not in (1, 2):
            raise ValueError(f"preset.stride={preset.stride}: use 1, or 2 with one more rank a half of the batch")
        if config.topology.world_size == 1:
            return
        names = [unit.name for unit in units_of(config)]
        if "up0.attn0" not in names:
            raise ValueError(
                f"model={config.model.name}: AsyncDiff's cuts are those of SDXL's UNet, "
                f"which attends on its lowest level; use model=sdxl or preset=fold"
            )
        topology = self.topology(preset, config)
        ranks = [one + preset.stride - 1 for one in COMPONENTS]
        if topology.slices not in ranks:
            known = [Topology(world_size=one * topology.halves, split_batch=topology.split_batch) for one in ranks]
            use = ", or ".join(typed(one) for one in known)
            raise ValueError(
                f"preset.stride={preset.stride} with topology={topology.name}: {COMPONENTS[0]} to {COMPONENTS[-1]} "
                f"components take {ranks[0]} to {ranks[-1]} ranks a half of the batch; use {use}"
            )

    def uses(self, preset: AsyncDiffConfig, config: ExperimentConfig) -> frozenset[str]:
        return frozenset({"warmup_steps", "refresh"})

    def depth(self, preset: AsyncDiffConfig, config: ExperimentConfig) -> Depth:
        units, number = units_of(config), self.topology(preset, config).slices - preset.stride + 1
        segments = components(units, number)
        return depth_of(units, segments, timetable(self.steps(preset, config), units, number, preset.stride))


def components(units: Sequence[Unit], number: int) -> tuple[Segment, ...]:
    """The segments of so many components: the outer one's way down, the others, the outer one's way up."""
    names = [unit.name for unit in units]
    layers = sum(name.startswith("down0.res") for name in names)
    lowest = max(int(name[4]) for name in names if name.startswith("down"))
    deep = f"down{lowest - 1}.down"
    ends = {
        2: (deep, f"up0.attn{layers - 1}"),
        3: (deep, "up0.res0", "up0.up"),
        4: (f"down{lowest - 1}.res0", f"down{lowest}.attn{layers - 1}", "up0.attn0", "up0.up"),
    }[number]
    starts = [0, *(names.index(name) + 1 for name in ends)]
    stops = [*starts[1:], len(units)]
    return tuple(Segment(start, stop, k % number) for k, (start, stop) in enumerate(zip(starts, stops, strict=True)))


def timetable(steps: Sequence[Step], units: Sequence[Unit], number: int, stride: int) -> Timetable:
    """Who computes what in which step."""
    links = [(wire.source, wire.target) for wire in wires(units, components(units, number))]
    return lockstep_timetable(steps, number, links, stride)


METHOD = AsyncDiff()
