"""What a UNet is called with, and the part of it that a rank computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional as F

from otil_exp.topology import RankContext


@dataclass(frozen=True)
class StepInputs:
    """Arguments of one call of a UNet."""

    sample: torch.Tensor
    """(b, 4, H, W): latents, scaled by the scheduler; b = 2 with guidance, unconditional first."""

    timestep: torch.Tensor
    """() or (b,), integer or float."""

    encoder_hidden_states: torch.Tensor
    """(b, tokens, width): text."""

    added_cond_kwargs: dict[str, torch.Tensor]
    """Of SDXL text_embeds (b, width) and time_ids (b, 6); empty where the UNet gets text alone."""

    def half(self, index: int) -> StepInputs:
        """One half of the guidance batch: views of (1, ...), the caller's dict untouched."""
        own = slice(index, index + 1)
        return StepInputs(
            sample=self.sample[own],
            timestep=self.timestep[own] if self.timestep.ndim and len(self.timestep) > 1 else self.timestep,
            encoder_hidden_states=self.encoder_hidden_states[own],
            added_cond_kwargs={name: tensor[own] for name, tensor in self.added_cond_kwargs.items()},
        )

    def part(self, dim: int, index: int, parts: int) -> StepInputs:
        """The index-th of equal parts of the picture: rows for dim 2, columns for dim 3 (a view)."""
        return replace(self, sample=self.sample.chunk(parts, dim)[index])

    def to(self, device: torch.device) -> StepInputs:
        """The same on a device."""
        return StepInputs(
            sample=self.sample.to(device),
            timestep=self.timestep.to(device),
            encoder_hidden_states=self.encoder_hidden_states.to(device),
            added_cond_kwargs={name: tensor.to(device) for name, tensor in self.added_cond_kwargs.items()},
        )

    def static(self) -> StepInputs:
        """Copies at fixed addresses. The timestep is float (upstream's int64 buffer truncates 500.9 to 500)."""
        return StepInputs(
            sample=self.sample.clone(),
            timestep=self.timestep.to(torch.float32).expand(len(self.sample)).clone(),
            encoder_hidden_states=self.encoder_hidden_states.clone(),
            added_cond_kwargs={name: tensor.clone() for name, tensor in self.added_cond_kwargs.items()},
        )

    def overwrite(self, other: StepInputs) -> None:
        """Copy another call's values into these tensors; shapes must be the same, a () timestep fills all."""
        assert self.sample.shape == other.sample.shape, f"{tuple(other.sample.shape)} is not {tuple(self.sample.shape)}"
        self.sample.copy_(other.sample)
        self.timestep.copy_(other.timestep)
        self.encoder_hidden_states.copy_(other.encoder_hidden_states)
        for name, tensor in self.added_cond_kwargs.items():
            tensor.copy_(other.added_cond_kwargs[name])


def on_device(timestep: torch.Tensor | float, device: torch.device) -> torch.Tensor:
    """A timestep () or (b,) as a tensor of the device. One number is written there by a kernel, not copied from the
    host's memory: such a copy would wait until the device has done all it was given."""
    if isinstance(timestep, torch.Tensor) and (timestep.ndim or timestep.device.type != "cpu"):
        return timestep.to(device)
    dtype = timestep.dtype if isinstance(timestep, torch.Tensor) else None
    return torch.full((), float(timestep), dtype=dtype, device=device)


def predict(unet: Callable[..., Any], inputs: StepInputs) -> torch.Tensor:
    """Call a UNet with the interface of diffusers'. Returns its output, (b, 4, h, w)."""
    output: torch.Tensor = unet(
        inputs.sample,
        inputs.timestep,
        inputs.encoder_hidden_states,
        added_cond_kwargs=inputs.added_cond_kwargs,
        return_dict=False,
    )[0]
    return output


Cut = Callable[[StepInputs, int], StepInputs]
"""(inputs of the whole batch and picture, step counter) -> the inputs of this rank."""


def own_half(ranks: RankContext) -> Cut:
    """A rank's batch half of the whole picture (everything without split_batch)."""
    if not ranks.topology.split_batch:
        return lambda inputs, counter: inputs
    return lambda inputs, counter: inputs.half(ranks.batch_half)


def own_part(ranks: RankContext, dim: Callable[[int], int]) -> Cut:
    """A rank's batch half of its rows (dim 2) or columns (dim 3). dim: given the step counter."""
    half, slices = own_half(ranks), ranks.topology.slices
    return lambda inputs, counter: half(inputs, counter).part(dim(counter), ranks.slice_index, slices)


def own_rows_and_next(ranks: RankContext) -> Cut:
    """A rank's batch half of its rows, with the row above and the row below them (zeros beyond the picture)."""
    half, slices = own_half(ranks), ranks.topology.slices
    if slices == 1:
        return half

    def cut(inputs: StepInputs, counter: int) -> StepInputs:
        own = half(inputs, counter)
        rows = own.sample.shape[2] // slices
        padded = F.pad(own.sample, (0, 0, 1, 1))
        return replace(own, sample=padded.narrow(2, ranks.slice_index * rows, rows + 2))

    return cut
