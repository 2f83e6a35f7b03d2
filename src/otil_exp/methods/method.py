"""What a family of methods says of a cell before any rank exists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from otil_exp.config import ExperimentConfig, MethodConfig
from otil_exp.schedule import NO_WARMUP, Step, schedule
from otil_exp.topology import Topology

C = TypeVar("C", bound=MethodConfig)

OPTIONAL = ("warmup_steps", "groupnorm", "refresh", "k", "codec")
"""Settings outside `preset` that only some methods use."""


@dataclass(frozen=True)
class Slicing:
    """Into how many slices a picture is cut: 1 where it is not."""

    rows: int = 1
    columns: int = 1


@dataclass(frozen=True)
class Depth:
    """A UNet cut by depth."""

    shares: tuple[float, ...]
    """Of the FLOPs, stage by stage, outermost first; they sum up to 1."""

    ends: tuple[str, ...]
    """The last unit of each segment but the last one, in the order of the UNet."""

    ages: tuple[int, ...]
    """Of each step of a picture: steps between it and the oldest latent that its prediction rests on."""


class Method(Generic[C]):
    """The rules of one family; every function gets the family's own settings and the whole cell."""

    shares_weights = True
    """Whether every rank keeps all layers whole, so that the next run of a process can have the same weights."""

    rolls = False
    """Whether a renewal of the layers' context can be spread over the steps (refresh.rolling)."""

    def topology(self, preset: C, config: ExperimentConfig) -> Topology:
        """Where the ranks stand."""
        asked = config.topology
        return Topology(world_size=asked.world_size, split_batch=asked.split_batch and asked.world_size > 1)

    def check(self, preset: C, config: ExperimentConfig) -> None:
        """Raise ValueError, with what to type, where the family's settings contradict each other or the cell."""

    def comes_to(self, preset: C, config: ExperimentConfig) -> MethodConfig:
        """The method this one is on the cell's topology: where it has nothing to do, another family's."""
        return preset

    def normal_form(self, preset: C, config: ExperimentConfig) -> C:
        """The settings with all that makes no difference set to one fixed value. What it comes to has been asked."""
        return preset

    def uses(self, preset: C, config: ExperimentConfig) -> frozenset[str]:
        """Which of the OPTIONAL settings change something."""
        return frozenset()

    def steps(self, preset: C, config: ExperimentConfig) -> tuple[Step, ...]:
        """The steps of a picture. Expects an effective config."""
        warms_up = "warmup_steps" in self.uses(preset, config)
        warmup_steps = config.warmup_steps if warms_up else NO_WARMUP
        refresh = config.refresh
        return schedule(
            config.num_inference_steps,
            warmup_steps,
            refresh.period,
            finalizes=self.finalizes(preset),
            rolling=refresh.rolling,
        )

    def finalizes(self, preset: C) -> bool:
        """Whether the last step is followed by a gather that makes the latent exact."""
        return False

    def budget(self, preset: C, config: ExperimentConfig) -> int:
        """Blocks sent a step, of a method that uses k. Raises ValueError for a budget it cannot send."""
        raise NotImplementedError("a method that uses k says how many blocks it is")

    def slicing(self, preset: C, config: ExperimentConfig) -> Slicing:
        """How the picture is cut: where seams may be, and what must divide."""
        return Slicing()

    def depth(self, preset: C, config: ExperimentConfig) -> Depth | None:
        """How the UNet is cut into stages, of an effective config; None where every rank has all layers."""
        return None

    def exchanges_in_layers(self, preset: C, config: ExperimentConfig) -> bool:
        """Whether collectives lie inside the UNet, which a CUDA graph must then hold."""
        return False

    def obstacle(self, preset: C, config: ExperimentConfig) -> str | None:
        """Why the steps cannot be compiled, as the rest of a sentence; None if they can."""
        return None
