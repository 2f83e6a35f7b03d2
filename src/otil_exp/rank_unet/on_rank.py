"""A method on one rank: what happens between one call of the UNet by diffusers' pipeline and the next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import torch
from diffusers import UNet2DConditionModel

from otil_exp.rank_unet.engine import StepEngine
from otil_exp.rank_unet.engine_choice import EngineChoice
from otil_exp.rank_unet.inputs import Cut, StepInputs
from otil_exp.rank_unet.kinds import StepKinds
from otil_exp.rank_unet.layers import StepLayers
from otil_exp.schedule import Step
from otil_exp.traffic import TrafficCounter


class OnRank(ABC):
    """`prepare` once, then for each picture `begin`, `predict` and `exchange` a step, `finish`; all ranks alike."""

    unet: UNet2DConditionModel
    """Whole or in part, with the config of the whole one."""

    runs_as: str
    """Which engine the steps got, in words."""

    captured: bool
    """Whether steps are replayed as CUDA graphs."""

    calls_modules = False
    """Whether the layers are called as modules, whatever the engine: set while something watches them."""

    has_silent_form = False
    """Whether the last kind of step and those before it have graphs of their own: either can be compiled by itself."""

    timesteps: Callable[[], torch.Tensor]
    """The timesteps of the picture under way, (steps,): for a method that works ahead. Set by the pipeline."""

    @abstractmethod
    def prepare(self, inputs: StepInputs) -> None:
        """Make buffers and graphs from example inputs of the right shapes: of the whole batch and picture."""

    def begin(self, steps: Sequence[Step]) -> None:  # noqa: B027 - most methods have nothing to do
        """A picture starts; these are its steps."""

    @abstractmethod
    def predict(self, inputs: StepInputs, step: Step) -> torch.Tensor:
        """The noise prediction (b, 4, H, W) that this rank's scheduler step uses, a new tensor at each call.

        inputs: of the whole batch and picture, the same on all ranks but for latents that a method lets grow apart.
        """

    def exchange(self, latents: torch.Tensor, step: Step) -> torch.Tensor:
        """The latents (1, 4, H, W) that the next step gets, after this step's scheduler step."""
        return latents

    @abstractmethod
    def finish(self) -> None:
        """A picture ends: leave nothing pending."""

    @abstractmethod
    def close(self) -> None:
        """Undo what acts on the whole process, and drop the graphs: NCCL waits for those of its collectives."""


class LayersOnRank(OnRank):
    """A method that runs all layers of a UNet in every step, on the part of the inputs that is this rank's."""

    def __init__(
        self,
        layers: StepLayers,
        choice: EngineChoice,
        traffic: TrafficCounter,
        *,
        cut: Cut,
        kinds: StepKinds,
        undo: ExitStack | None = None,
    ) -> None:
        """cut: the inputs of this rank. kinds: which steps do the same. undo: what `close` takes back."""
        self.unet, self.runs_as, self.captured = layers.unet, choice.sentence, choice.captured
        self._layers, self._cut, self._kinds = layers, cut, kinds
        self.engine: StepEngine | None = choice.engine(traffic)
        self._undo = undo or ExitStack()

    def prepare(self, inputs: StepInputs) -> None:
        """As pipelines.py:62-168 does: register, call each kind of step, capture it."""
        assert self.engine is not None, "the method is closed"
        parts = self._registered_on(inputs)
        self.registered()
        for step, part in parts:  # libraries and communicators start up here, which a capture could not bear
            self._layers.set_step(step)
            self._layers(part)
        self._layers.clear()
        for kind, (step, part) in enumerate(parts):
            self._layers.set_step(step)
            self.engine.capture(kind, self._compute_alone, part)
        self._layers.clear()

    def compile_last_kind(self, inputs: StepInputs) -> None:
        """Compile the layers of the last kind of step alone, which run once; for a process that does nothing else."""
        step, part = self._registered_on(inputs)[-1]
        self._layers.set_step(step)
        self._layers(part)
        self._layers.clear()

    def _registered_on(self, inputs: StepInputs) -> list[tuple[Step, StepInputs]]:
        """Register the layers; a step of each kind, with its inputs."""
        parts = [(step, self._cut(inputs, step.counter).static()) for step in self._kinds.examples]
        self._layers.register(lambda: self._layers(parts[0][1]))
        return parts

    def registered(self) -> None:
        """The layers have their buffers, and nothing is captured yet."""

    def run_layers(self, inputs: StepInputs, step: Step) -> torch.Tensor:
        """Output of the layers for this rank's part of the inputs, (b / halves, 4, h, w)."""
        assert self.engine is not None, "the method is closed"
        self._layers.set_step(step)
        part = self._cut(inputs, step.counter)
        if self.calls_modules:
            local = self._layers.call_modules(part)
        else:
            local = self.engine.run(self._kinds.of(step), self._layers, part)
        self._layers.after_step()
        return local

    def finish(self) -> None:
        self._layers.clear()

    def close(self) -> None:
        self._undo.close()
        self.engine = None

    def _compute_alone(self, inputs: StepInputs) -> torch.Tensor:
        """Compute and wait for the exchanges: a CUDA graph must end with all of its streams joined."""
        output = self._layers(inputs)
        self._layers.wait()
        return output
