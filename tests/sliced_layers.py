"""What a UNet or a VAE's decoder over slices exchanges, counted in diffusers' own modules."""

from __future__ import annotations

from typing import NamedTuple

from diffusers.models.resnet import ResnetBlock2D
from torch import nn


class ExchangingLayers(NamedTuple):
    """How many layers look beyond their rows."""

    layers: int
    """All: GroupNorms, 3x3 convolutions but the first, which gets the rows next to its own at once, self-attentions."""
    shared: int
    """Pairs of a GroupNorm and the convolution after it: two a residual block, and the last layers."""
    norms: int


def exchanging_layers(model: nn.Module) -> ExchangingLayers:
    """Count them. model: of diffusers, nothing replaced."""
    modules = dict(model.named_modules())
    norms = sum(isinstance(module, nn.GroupNorm) for module in modules.values())
    convs = sum(isinstance(module, nn.Conv2d) and module.kernel_size == (3, 3) for module in modules.values())
    attentions = sum(
        name.endswith(("attn1", "attentions.0")) and hasattr(module, "to_k") for name, module in modules.items()
    )
    shared = 2 * sum(isinstance(module, ResnetBlock2D) for module in modules.values()) + 1
    return ExchangingLayers(norms + convs - 1 + attentions, shared, norms)
