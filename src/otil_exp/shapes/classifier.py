"""A small network that reads shape, colour, size, position and background off a picture; its features serve Frechet."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from otil_exp.shapes import FEATURES, METRICS_FOLDER
from otil_exp.shapes.scenes import VOCABULARY, Scene

INPUT_SIZE = 128
"""Side, in pixels, to which a picture is averaged before it is read."""


class PictureTrunk(nn.Module):
    """Pictures (B, 3, H, W) in [0, 1], any size -> features (B, FEATURES)."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 24, 48, 64, 64)
        layers: list[nn.Module] = []
        for into, out in itertools.pairwise(widths):
            layers += [nn.Conv2d(into, out, 3, stride=2, padding=1), nn.GroupNorm(8, out), nn.GELU()]
        self.convolutions = nn.Sequential(*layers)
        self.project = nn.Linear(64 * 4 * 4, FEATURES)

    def forward(self, pictures: Tensor) -> Tensor:
        small = F.interpolate(pictures, (INPUT_SIZE, INPUT_SIZE), mode="area") * 2 - 1
        cells = F.adaptive_avg_pool2d(self.convolutions(small), 4)
        return self.project(cells.flatten(1))


class SceneClassifier(nn.Module):
    """One linear reading per attribute of `VOCABULARY` on shared features."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = PictureTrunk()
        self.readings = nn.ModuleDict({name: nn.Linear(FEATURES, len(values)) for name, values in VOCABULARY.items()})

    @classmethod
    def load(cls, path: Path = METRICS_FOLDER / "classifier.safetensors") -> "SceneClassifier":
        """Return the shipped classifier in float32, in evaluation mode."""
        classifier = cls()
        classifier.load_state_dict(load_file(path))
        return classifier.float().eval()

    def features(self, pictures: Tensor) -> Tensor:
        """Return (B, FEATURES) for pictures (B, 3, H, W) in [0, 1]."""
        return self.trunk(pictures)

    def forward(self, pictures: Tensor) -> dict[str, Tensor]:
        """Return logits (B, number of values) per attribute."""
        features = F.gelu(self.trunk(pictures))
        return {name: reading(features) for name, reading in self.readings.items()}


def attribute_indices(scenes: Sequence[Scene], device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Return (B,) indices into `VOCABULARY` per attribute: what the classifier should read."""
    return {
        name: torch.tensor([values.index(getattr(scene, name)) for scene in scenes], device=device)
        for name, values in VOCABULARY.items()
    }


@torch.no_grad()
def agreement(classifier: SceneClassifier, pictures: Tensor, scenes: Sequence[Scene]) -> dict[str, Tensor]:
    """Tell per attribute and picture whether the classifier reads what the scene asks for: (B,) booleans.

    pictures: (B, 3, H, W) in [0, 1].
    """
    wanted = attribute_indices(scenes, pictures.device)
    return {name: logits.argmax(1) == wanted[name] for name, logits in classifier(pictures).items()}
