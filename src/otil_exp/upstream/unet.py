"""The UNet that diffusers' SDXL pipeline calls: one forward for every way of spreading it over ranks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from diffusers.models.unets.unet_2d_condition import UNet2DConditionOutput
from torch import nn

from otil_exp.upstream.assemble import Assembly, UNetStep
from otil_exp.upstream.engine import StepEngine
from otil_exp.upstream.inputs import Cut, StepInputs, on_device
from otil_exp.upstream.kinds import StepKinds
from otil_exp.upstream.layers import StepLayers


class RankUNet(nn.Module):
    """This rank's share of a UNet behind the interface of a whole one.

    A call takes the inputs of the whole batch and picture, the same on all ranks: cut to this rank's part, run the
    layers, assemble the noise prediction. `prepare` once, then for each picture `begin`, one call a step, `finish`;
    all ranks alike. Made by `build_unet`. Upstream's forwards (models/*.py) are not used: they return a buffer that the
    next step overwrites, edit the caller's added_cond_kwargs, truncate fractional timesteps, and take part in a gather
    that some methods do without.
    """

    def __init__(
        self,
        layers: StepLayers,
        engine: StepEngine,
        *,
        cut: Cut,
        assemble: Assembly,
        kinds: StepKinds,
        sample_shape: tuple[int, int, int, int],
        patches: ExitStack,
        captured: bool,
        runs_as: str,
    ) -> None:
        """sample_shape: (b, 4, H, W) of the whole call. patches: applied for this UNet, undone by close().
        captured: whether its steps are replayed as CUDA graphs. runs_as: which engine they got, in words.
        """
        super().__init__()
        self.unet = layers.unet
        self.engine: StepEngine | None = engine  # None once it is closed
        self.captured, self.runs_as = captured, runs_as
        self._layers, self._cut, self._assemble, self._kinds = layers, cut, assemble, kinds
        self._sample_shape = sample_shape
        self._patches = patches
        self._steps: Sequence[UNetStep] = ()
        self._next = 0

    @torch.no_grad()
    def prepare(
        self,
        *,
        sample: torch.Tensor,
        timestep: torch.Tensor | float,
        encoder_hidden_states: torch.Tensor,
        added_cond_kwargs: dict[str, torch.Tensor],
    ) -> None:
        """Make exchange buffers and graphs from example inputs of the right shapes (as pipelines.py:62-168 does).

        Takes several calls of the UNet, with their collectives: all ranks must call it, before the first picture.
        """
        assert self.engine is not None, "the UNet is closed"
        inputs = self._checked(sample, timestep, encoder_hidden_states, added_cond_kwargs)
        parts = [(counter, self._cut(inputs, counter).static()) for counter in self._kinds.examples]
        self._layers.register(lambda: self._layers(parts[0][1]))
        for counter, part in parts:  # libraries and communicators start up here, which a capture could not bear
            self._layers.set_counter(counter)
            self._layers(part)
        self._layers.clear()
        for kind, (counter, part) in enumerate(parts):
            self._layers.set_counter(counter)
            self.engine.capture(kind, self._compute_alone, part)
        self._layers.clear()

    def begin(self, steps: Sequence[UNetStep]) -> None:
        """Start a picture; the i-th call runs as steps[i] says."""
        self._steps, self._next = steps, 0

    def finish(self) -> None:
        """End a picture: no exchange is pending afterwards. All ranks must call it."""
        self._layers.clear()

    def close(self) -> None:
        """Undo the patches of distrifuser and drop the graphs; the UNet cannot be called any more."""
        self._patches.close()
        self.engine = None

    def forward(
        self,
        sample: torch.Tensor,
        timestep: torch.Tensor | float,
        encoder_hidden_states: torch.Tensor,
        *,
        added_cond_kwargs: dict[str, torch.Tensor] | None = None,
        return_dict: bool = True,
        **unsupported: Any,
    ) -> UNet2DConditionOutput | tuple[torch.Tensor]:
        """Predict the noise of the next step of the picture.

        sample: (b, 4, H, W), b = 2 with guidance (unconditional first), else 1. timestep: number, () or (b,).
        Returns the prediction (b, 4, H, W), a new tensor at each call.
        Raises ValueError for other arguments of UNet2DConditionModel.forward (class_labels, attention_mask, ...) and
        for shapes other than those it was built for.
        """
        given = sorted(name for name, value in unsupported.items() if value is not None)
        if given:
            raise ValueError(f"{', '.join(given)}: distributed layers do not support this argument of the UNet")
        assert self.engine is not None, "the UNet is closed"
        inputs = self._checked(sample, timestep, encoder_hidden_states, added_cond_kwargs or {})
        step = self._advance()
        self._layers.set_counter(step.counter)
        part = self._cut(inputs, step.counter)
        local = self.engine.run(self._kinds.of(step.counter), self._layers, part)
        self._layers.exchange(inputs.sample, step.counter)
        prediction = self._assemble(local, step)
        return UNet2DConditionOutput(sample=prediction) if return_dict else (prediction,)

    @property
    def config(self) -> Any:
        """Of the whole UNet."""
        return self.unet.config

    @property
    def dtype(self) -> torch.dtype:
        return self.unet.dtype

    @property
    def device(self) -> torch.device:
        return self.unet.device

    @property
    def add_embedding(self) -> nn.Module:
        """The pipeline reads the width of the time ids here."""
        return self.unet.add_embedding

    def _advance(self) -> UNetStep:
        assert self._next < len(self._steps), (
            f"call {self._next + 1} of a picture of {len(self._steps)} steps: call begin(steps) before each picture; "
            f"schedulers that call the UNet twice a step (Heun, KDPM2) are not supported"
        )
        step = self._steps[self._next]
        self._next += 1
        return step

    def _checked(
        self,
        sample: torch.Tensor,
        timestep: torch.Tensor | float,
        encoder_hidden_states: torch.Tensor,
        added_cond_kwargs: dict[str, torch.Tensor],
    ) -> StepInputs:
        if tuple(sample.shape) != self._sample_shape:
            raise ValueError(
                f"sample of shape {tuple(sample.shape)}: this UNet was built for {self._sample_shape} (one picture a "
                f"call, 2 in the batch with guidance and 1 without, at the height and width of the config)"
            )
        return StepInputs(sample, on_device(timestep, sample.device), encoder_hidden_states, added_cond_kwargs)

    def _compute_alone(self, inputs: StepInputs) -> torch.Tensor:
        """Compute and wait for the exchanges: a CUDA graph must end with all of its streams joined."""
        output = self._layers(inputs)
        self._layers.wait()
        return output
