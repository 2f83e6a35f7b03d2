"""Figures of published tables are computed as their scripts compute them, by values of the packages they use.

Pinned values were made once with clean-fid 0.1.35 and lpips 0.1.4 (torch 2.14.1, Pillow 13.0.0, numpy 2.4.6, and
scikit-image's photos), which are no dependencies of this project:

- the resize by `cleanfid.resize.build_resizer("clean")` of whole photos;
- the Frechet distance by `cleanfid.fid.frechet_distance` of the features below;
- the distance of folders by `cleanfid.fid.compute_fid(run, truth, mode="clean", custom_feat_extractor=pooled)` over
  PNGs of the crops below, since the network that clean-fid fetches is not to be had here;
- LPIPS by `lpips.LPIPS(net="alex", pnet_rand=True)` with `normalize=True`, the heads that ship, and the AlexNet below.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from skimage import data
from torchmetrics.image import PeakSignalNoiseRatio
from torchvision.models import alexnet

from otil_exp.metrics import perceptual
from otil_exp.metrics.clean_fid import CleanInception, clean_resize
from otil_exp.metrics.extractors import Extractor
from otil_exp.metrics.frechet import frechet_distance
from otil_exp.metrics.ground_truth import FolderPictures
from otil_exp.metrics.pairwise import psnr, read_picture
from otil_exp.metrics.perceptual import PerceptualDistance


def tensor(photo: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(photo / 255).permute(2, 0, 1).float()


CHECKER = np.tile(np.indices((64, 96)).sum(0) % 2 * 255, (3, 1, 1)).transpose(1, 2, 0).astype(np.uint8)


@pytest.mark.parametrize(
    ("photo", "mean", "deviation", "pixel"),
    [
        (data.astronaut, 114.60254627831462, 80.7808811878282, (220.31236267, 208.27175903, 203.08627319)),
        (data.coffee, 98.61453164935261, 73.54108426565783, (247.46008301, 232.76193237, 215.34242249)),
        (lambda: CHECKER, 127.49999997255267, 62.953451359865085, (243.87789917, 243.87789917, 243.87789917)),
    ],
)
def test_the_resize_is_clean_fid_s(photo: object, mean: float, deviation: float, pixel: tuple[float, ...]) -> None:
    """Two photos and a chequered field of 64 x 96, whose edges the filter overshoots; pixel: row 100, column 200."""
    assert callable(photo)
    resized = clean_resize(tensor(photo())).double()
    assert resized.shape == (3, 299, 299)
    assert float(resized.mean()) == pytest.approx(mean, rel=1e-7)
    assert float(resized.std(correction=0)) == pytest.approx(deviation, rel=1e-7)
    assert resized[:, 100, 200].tolist() == pytest.approx(pixel, rel=1e-6)
    assert 0 <= float(resized.min()) < float(resized.max()) <= 255


def test_the_frechet_distance_is_clean_fid_s() -> None:
    rng = np.random.default_rng(7)
    ours = rng.standard_normal((400, 32)) @ rng.standard_normal((32, 32))
    theirs = 1.1 * rng.standard_normal((300, 32)) @ rng.standard_normal((32, 32)) + 0.2
    assert frechet_distance(ours, theirs) == pytest.approx(619.3623008234167, rel=1e-9)


def crops(photo: np.ndarray, seed: int, sides: list[int]) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(seed)
    for _ in range(40):
        height, width = rng.choice(sides, 2)
        top, left = rng.integers(0, photo.shape[0] - height + 1), rng.integers(0, photo.shape[1] - width + 1)
        yield photo[top : top + height, left : left + width]


def pooled(picture: torch.Tensor) -> torch.Tensor:
    """(1, 3, H, W) -> (1, 12): a stand-in for the network, behind the real resize."""
    return torch.nn.functional.adaptive_avg_pool2d(clean_resize(picture[0])[None], 2).flatten(1)


def test_ground_truth_of_any_size_is_compared_as_clean_fid_compares_folders(tmp_path: Path) -> None:
    for name, photo, seed, sides in (("run", data.astronaut(), 0, [256]), ("gt", data.coffee(), 1, [120, 200, 333])):
        (tmp_path / name).mkdir()
        for number, crop in enumerate(crops(photo, seed, sides)):
            Image.fromarray(crop).save(tmp_path / name / f"{number:04d}.png")
    extractor = Extractor(
        name="pooled",
        frechet_name="f",
        kernel_name="k",
        size=12,
        resize="clean",
        backend="none",
        device=torch.device("cpu"),
        network=pooled,
        own_size=True,
    )
    sets = [extractor(FolderPictures(tmp_path / name)) for name in ("run", "gt")]
    assert frechet_distance(*sets) == pytest.approx(21646.565921229896, rel=1e-6)


def test_the_network_is_called_as_clean_fid_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """(x - 128) / 128 of the resized values goes through all layers but the classifier: torch-fidelity's own forward
    says the same of a picture of 299 x 299, which neither resize changes."""
    from torch_fidelity import feature_extractor_inceptionv3 as fidelity

    with monkeypatch.context() as patch, torch.random.fork_rng():
        torch.manual_seed(0)
        patch.setattr(fidelity.torch, "load", lambda *_, **__: {})
        patch.setattr(fidelity.FeatureExtractorInceptionV3, "load_state_dict", lambda self, state: None)
        network = fidelity.FeatureExtractorInceptionV3("i", ["2048"], "random")
        torch.manual_seed(0)
        ours = CleanInception(Path("random"))
    picture = torch.from_numpy(data.astronaut()[:299, :299].copy()).permute(2, 0, 1)
    with torch.no_grad():
        wanted, found = network(picture[None])[0], ours(picture[None] / 255)
    assert float(wanted.std()) > 0
    assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-6)


def test_lpips_is_the_lpips_package_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AlexNet's parameters in their order are 0.05 times normal draws of seed 3."""
    generator = torch.Generator().manual_seed(3)
    layers = alexnet(weights=None).features
    for parameter in layers.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.05
    torch.save({f"features.{name}": value for name, value in layers.state_dict().items()}, tmp_path / "alexnet.pth")
    monkeypatch.setattr(perceptual, "ALEXNET_SHA256", "")
    distance = PerceptualDistance.load("lpips_alex", tmp_path / "alexnet.pth")
    photo = data.astronaut() / 255
    assert distance(photo[:128, :128], photo[64:192, 32:160]) == pytest.approx(0.12157652527093887, rel=1e-4)


def test_psnr_is_torchmetrics_per_picture_and_then_the_mean(tmp_path: Path) -> None:
    """As distrifuser asks torchmetrics for it, over a batch of pictures that differ by 1, 10 and 50 noise levels."""
    rng, photo = np.random.default_rng(0), data.astronaut()[:96, :80]
    metric = PeakSignalNoiseRatio(data_range=(0.0, 1.0), reduction="elementwise_mean", dim=(1, 2, 3))
    values = []
    for level in (1, 10, 50):
        noisy = np.clip(photo + level * rng.standard_normal(photo.shape), 0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(tmp_path / "noisy.png")
        values.append(psnr(read_picture(tmp_path / "noisy.png"), photo / 255))
        metric.update(tensor(noisy)[None], tensor(photo)[None])
    assert np.mean(values) == pytest.approx(float(metric.compute()), rel=1e-6)
