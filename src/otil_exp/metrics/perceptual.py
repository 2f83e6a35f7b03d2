"""Perceptual distance of two pictures: features of a network, compared place by place at five depths."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from otil_exp.metrics.efficientnet import EfficientNetLite0
from otil_exp.metrics.pairwise import check_pair
from otil_exp.metrics.repeatable import repeatable

ALEXNET_FILE = "alexnet-owt-7be5be79.pth"
ALEXNET_SHA256 = "7be5be79"
"""First digits of the SHA-256 of torchvision's AlexNet weights: other weights would give another number."""

ALEXNET_TAPS = (1, 4, 7, 9, 11)
"""Layers of torchvision's `alexnet().features` that LPIPS reads: the five ReLUs."""

LPIPS_SHIFT, LPIPS_SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)
"""ImageNet's mean and deviation for pictures in [-1, 1], as LPIPS has them."""

EPS = 1e-8
"""Added under the root of a feature's norm: a place without features has distance 0 to another one."""

NAMES = ("lpips_alex", "effnet_lite0_5stage")


@dataclass(frozen=True, kw_only=True)
class PerceptualDistance:
    """sum over depths of mean over places of sum over channels of w (f - g)^2, f and g of unit length over channels.

    Zhang et al., "The Unreasonable Effectiveness of Deep Features as a Perceptual Metric" (2018), Eq. 1.
    """

    name: str
    """What to call the number: `lpips_alex` is LPIPS, `effnet_lite0_5stage` is comparable with itself alone."""

    stages: Callable[[Tensor], list[Tensor]]
    """(1, 3, H, W) float32 in [0, 1] -> feature maps."""

    heads: list[Tensor] | None = None
    """Weight w of every channel, (C,) a depth; None: all 1."""

    device: torch.device | str = "cpu"

    @classmethod
    def load(cls, name: str, weights: Path | None = None, device: torch.device | str = "cpu") -> Self:
        """The distance called `name`, never downloading anything.

        weights: AlexNet's file for lpips_alex; None looks into torch's cache ($TORCH_HOME, ~/.cache/torch).
        Raises FileNotFoundError when it is not there, ValueError for another name or other weights.
        """
        if name == "effnet_lite0_5stage":
            return cls(name=name, stages=EfficientNetLite0.load(device).stages, device=device)
        if name == "lpips_alex":
            stages = _AlexNetStages(find_alexnet(weights)).to(device).stages
            return cls(name=name, stages=stages, heads=[head.to(device) for head in _alexnet_heads()], device=device)
        raise ValueError(f"no perceptual distance is called {name!r}: use {' or '.join(NAMES)}")

    @repeatable()
    def __call__(self, picture: np.ndarray, reference: np.ndarray) -> float:
        """Distance of two (H, W, 3) float pictures in [0, 1]: 0 for identical ones, no unit.

        At least 64 pixels a side for lpips_alex and 32 for effnet_lite0_5stage, below which the depths run out of
        places. Raises ValueError when the shapes differ or are too small.
        """
        check_pair(picture, reference)
        maps, other_maps = (self.stages(_tensor(p).to(self.device)) for p in (picture, reference))
        total = 0.0
        for depth, (features, others) in enumerate(zip(maps, other_maps, strict=True)):
            squares = (_unit(features) - _unit(others)) ** 2
            if self.heads is not None:
                squares = squares * self.heads[depth][:, None, None]
            total += float(squares.sum(1).mean())
        return total


class _AlexNetStages(nn.Module):
    """The convolutions of torchvision's AlexNet, read after each ReLU."""

    shift: Tensor
    scale: Tensor

    def __init__(self, weights: Path) -> None:
        super().__init__()
        from torchvision.models import alexnet

        with torch.device("meta"):
            layers: nn.Module = alexnet(weights=None).features
        state = torch.load(weights, map_location="cpu", weights_only=True)
        # The classifier, nine tenths of the file, is left out.
        kept = {name.removeprefix("features."): value for name, value in state.items() if name.startswith("features.")}
        layers.load_state_dict(kept, assign=True)
        self.layers = layers.requires_grad_(False).eval()
        self.register_buffer("shift", torch.tensor(LPIPS_SHIFT)[:, None, None])
        self.register_buffer("scale", torch.tensor(LPIPS_SCALE)[:, None, None])

    def stages(self, pictures: Tensor) -> list[Tensor]:
        if min(pictures.shape[-2:]) < 64:
            raise ValueError(f"lpips_alex needs 64 pixels a side, the pictures have {tuple(pictures.shape[-2:])}")
        x, maps = (pictures * 2 - 1 - self.shift) / self.scale, []
        for index, layer in enumerate(self.layers.children()):
            x = layer(x)
            if index in ALEXNET_TAPS:
                # A copy: the ReLUs work in place, and the next layers must not touch what was read.
                maps.append(x.clone())
        return maps


def find_alexnet(weights: Path | None) -> Path:
    """AlexNet's file at `weights` or in torch's cache. Raises FileNotFoundError or ValueError with what to fetch."""
    path = weights or Path(torch.hub.get_dir()) / "checkpoints" / ALEXNET_FILE
    if not os.path.isfile(path):
        raise FileNotFoundError(
            f"LPIPS needs torchvision's AlexNet weights and {path} is not there: fetch "
            f"https://download.pytorch.org/models/{ALEXNET_FILE} (244 MB) on a machine with network and put it there, "
            "or use metrics.perceptual=effnet_lite0_5stage, whose weights are installed"
        )
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if not digest.startswith(ALEXNET_SHA256):
        raise ValueError(
            f"{path} is not torchvision's AlexNet (SHA-256 {digest[:8]}..., not {ALEXNET_SHA256}...): with other "
            f"weights the number is not LPIPS; fetch https://download.pytorch.org/models/{ALEXNET_FILE} again"
        )
    return path


def _alexnet_heads() -> list[Tensor]:
    """LPIPS 0.1's trained weights of AlexNet's channels, which ship with torchmetrics: five of shape (C,)."""
    from torchmetrics.functional.image import lpips

    heads = torch.load(Path(lpips.__file__).parent / "lpips_models" / "alex.pth", map_location="cpu", weights_only=True)
    return [heads[f"lin{depth}.model.1.weight"].flatten() for depth in range(5)]


def _unit(features: Tensor) -> Tensor:
    """Features (1, C, h, w) scaled to length 1 over the channels at every place."""
    return features / (EPS + (features**2).sum(1, keepdim=True)).sqrt()


def _tensor(picture: np.ndarray) -> Tensor:
    return torch.from_numpy(picture.astype(np.float32)).permute(2, 0, 1)[None]
