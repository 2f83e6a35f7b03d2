"""What a method needs of the layers of a UNet, whoever made them; and layers that know of no other rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from diffusers import UNet2DConditionModel

from otil_exp.rank_unet.inputs import StepInputs, predict
from otil_exp.schedule import Step


class StepLayers(Protocol):
    """The UNet of this rank, and what its layers exchange."""

    unet: UNet2DConditionModel

    def __call__(self, inputs: StepInputs) -> torch.Tensor:
        """Run the UNet of the step that was set."""

    def call_modules(self, inputs: StepInputs) -> torch.Tensor:
        """The same by the modules themselves, also where the UNet is compiled: what watches them sees every call."""

    def set_step(self, step: Step) -> None:
        """Tell every layer which step comes next."""

    def register(self, call: Callable[[], Any]) -> None:
        """Make the exchange buffers: `call` runs the UNet once."""

    def after_step(self) -> None:
        """Send what the layers leave for the next step, if they do."""

    def wait(self) -> None:
        """Wait for the exchanges that are under way."""

    def clear(self) -> None:
        """Leave nothing pending. All ranks must call it."""


class PlainLayers:
    """The layers as diffusers has them: for ranks that compute a picture, or a part of it, by themselves."""

    def __init__(self, unet: UNet2DConditionModel) -> None:
        self.unet = unet.requires_grad_(False)

    def __call__(self, inputs: StepInputs) -> torch.Tensor:
        return predict(self.unet, inputs)

    call_modules = __call__

    def set_step(self, step: Step) -> None: ...

    def register(self, call: Callable[[], Any]) -> None: ...

    def after_step(self) -> None: ...

    def wait(self) -> None: ...

    def clear(self) -> None: ...
