"""The UNet that diffusers' pipeline calls: a method on a rank behind the interface of a whole UNet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from diffusers.models.unets.unet_2d_condition import UNet2DConditionOutput
from torch import nn

from otil_exp.rank_unet.inputs import StepInputs, on_device
from otil_exp.rank_unet.on_rank import OnRank
from otil_exp.schedule import Step


class RankUNet(nn.Module):
    """This rank's share of a UNet behind the interface of a whole one.

    A call takes the inputs of the whole batch and picture and returns the noise prediction of the method. `prepare`
    once, then for each picture `begin`, one call a step, `finish`; all ranks alike. Upstream's forwards (models/*.py)
    are not used: they return a buffer that the next step overwrites, edit the caller's added_cond_kwargs, truncate
    fractional timesteps, and take part in a gather that some methods do without.
    """

    def __init__(self, method: OnRank, sample_shape: tuple[int, int, int, int]) -> None:
        """sample_shape: (b, 4, H, W) of the whole call."""
        super().__init__()
        self.unet = method.unet
        self.method: OnRank | None = method  # None once it is closed
        self._sample_shape = sample_shape
        self._steps: Sequence[Step] = ()
        self._next = 0

    @torch.no_grad()
    def prepare(
        self,
        *,
        sample: torch.Tensor,
        timestep: torch.Tensor | float,
        encoder_hidden_states: torch.Tensor,
        added_cond_kwargs: dict[str, torch.Tensor] | None = None,
    ) -> None:
        """Make exchange buffers and graphs from example inputs of the right shapes.

        Takes several calls of the UNet, with their collectives: all ranks must call it, before the first picture.
        """
        self._open.prepare(self._checked(sample, timestep, encoder_hidden_states, added_cond_kwargs or {}))

    def begin(self, steps: Sequence[Step]) -> None:
        """Start a picture; the i-th call runs as steps[i] says."""
        self._steps, self._next = steps, 0
        self._open.begin(steps)

    @contextmanager
    def calling_modules(self) -> Iterator[None]:
        """Within it the layers are called as modules, whatever the engine."""
        method = self._open
        method.calls_modules = True
        try:
            yield
        finally:
            method.calls_modules = False

    def exchange(self, latents: torch.Tensor, step: Step) -> torch.Tensor:
        """What the next step gets of the latents (1, 4, H, W) that this step's scheduler step left."""
        return self._open.exchange(latents, step)

    def finish(self) -> None:
        """End a picture: no exchange is pending afterwards. All ranks must call it."""
        self._open.finish()

    def close(self) -> None:
        """Undo what acts on the whole process and drop the graphs; the UNet cannot be called any more."""
        if self.method is not None:
            self.method.close()
        self.method = None

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
        inputs = self._checked(sample, timestep, encoder_hidden_states, added_cond_kwargs or {})
        prediction = self._open.predict(inputs, self._advance())
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

    @property
    def _open(self) -> OnRank:
        assert self.method is not None, "the UNet is closed"
        return self.method

    def _advance(self) -> Step:
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
