"""FID as clean-fid computes it: the 2015 InceptionV3 behind a resize that does not alias, nor round what it made.

Parmar, Zhang, Zhu, "On Aliased Resizing and Surprising Subtleties in GAN Evaluation" (CVPR 2022), mode "clean".
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from otil_exp.metrics.repeatable import to_8bit

SIDE = 299
"""Side, in pixels, of what the network reads."""


def clean_resize(picture: Tensor) -> Tensor:
    """A picture (3, H, W), floats in [0, 1] -> (3, 299, 299) float32 in [0, 255].

    Each channel of its 8-bit values by itself, with Pillow's antialiased bicubic filter on floats; what the filter
    overshoots is cut, and nothing is rounded.
    """
    channels = [Image.fromarray(one).resize((SIDE, SIDE), Image.Resampling.BICUBIC) for one in _levels(picture)]
    return torch.from_numpy(np.stack([np.asarray(channel).clip(0, 255) for channel in channels]))


def _levels(picture: Tensor) -> np.ndarray:
    return to_8bit(picture).cpu().numpy().astype(np.float32)


class CleanInception(nn.Module):
    """Pooled features of torch-fidelity's InceptionV3 for pictures that were resized outside.

    Its own forward takes 8-bit values alone, and its modules stand in the order in which they are called.
    """

    def __init__(self, weights: Path) -> None:
        super().__init__()
        from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

        network = FeatureExtractorInceptionV3("inception-v3-compat", ["2048"], str(weights))
        *layers, logits = network.named_children()
        assert logits[0] == "fc", "only the classifier is left out"
        self.layers = nn.Sequential(*(layer for _, layer in layers))

    def forward(self, pictures: Tensor) -> Tensor:
        """(1, 3, H, W) float32 in [0, 1] -> (1, 2048)."""
        resized = clean_resize(pictures[0]).to(pictures.device)[None]
        features: Tensor = self.layers((resized - 128) / 128).flatten(1)
        return features
