"""Perceptual distances: LPIPS against torchmetrics' own network, the offline one by what it must do."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from skimage import data
from thread_counts import on_threads
from torchmetrics.functional.image.lpips import _LPIPS
from torchvision.models import alexnet

from otil_exp.metrics import perceptual
from otil_exp.metrics.pairwise import ssim
from otil_exp.metrics.perceptual import PerceptualDistance


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of torch's, and nothing may be downloaded: the path of AlexNet's weights in it."""

    def download(*_: object, **__: object) -> None:
        raise AssertionError("something was downloaded")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", download)
    (tmp_path / "hub/checkpoints").mkdir(parents=True)
    return tmp_path / "hub/checkpoints" / perceptual.ALEXNET_FILE


@pytest.fixture
def random_alexnet(cache: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, torch.Tensor]:
    """AlexNet's convolutions with seeded random weights in the cache, and believed to be the real ones."""
    torch.manual_seed(0)
    with torch.device("meta"):
        layers = alexnet(weights=None).features
    layers = layers.to_empty(device="cpu")
    for parameter in layers.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    state = {f"features.{name}": value.detach() for name, value in layers.state_dict().items()}
    torch.save(state, cache)
    monkeypatch.setattr(perceptual, "ALEXNET_SHA256", "")
    return state


def torchmetrics_lpips(state: dict[str, torch.Tensor], x: np.ndarray, y: np.ndarray) -> float:
    """LPIPS as torchmetrics computes it, over the given AlexNet."""
    network = _LPIPS(net="alex", pnet_rand=True)
    own = network.net.state_dict()
    network.net.load_state_dict({key: state["features." + key.split(".", 1)[1]] for key in own})
    tensors = [torch.from_numpy(p).permute(2, 0, 1)[None].float() for p in (x, y)]
    with torch.no_grad():
        return float(network(*tensors, normalize=True))


@pytest.fixture(scope="module")
def offline() -> PerceptualDistance:
    return PerceptualDistance.load("effnet_lite0_5stage")


@pytest.fixture(scope="module")
def photo() -> np.ndarray:
    return data.astronaut()[:256, 128:384] / 255


def test_lpips_is_torchmetrics_lpips(random_alexnet: dict[str, torch.Tensor]) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((70, 90, 3)), rng.random((70, 90, 3))
    distance = PerceptualDistance.load("lpips_alex")
    assert distance.name == "lpips_alex"
    assert distance(x, y) == pytest.approx(torchmetrics_lpips(random_alexnet, x, y), rel=1e-5)
    assert distance(x, x) == 0


def test_lpips_without_weights_says_what_to_fetch_and_where_to_put_it(cache: Path) -> None:
    with pytest.raises(FileNotFoundError, match=re.escape(str(cache))) as error:
        PerceptualDistance.load("lpips_alex")
    assert "https://download.pytorch.org/models/alexnet-owt-7be5be79.pth" in str(error.value)
    assert "effnet_lite0_5stage" in str(error.value)


def test_lpips_takes_a_path(random_alexnet: dict[str, torch.Tensor], cache: Path, tmp_path: Path) -> None:
    elsewhere = cache.rename(tmp_path / "mine.pth")
    assert PerceptualDistance.load("lpips_alex", weights=elsewhere)(np.zeros((64, 64, 3)), np.zeros((64, 64, 3))) == 0


def test_other_weights_are_not_called_lpips(cache: Path) -> None:
    cache.write_bytes(b"other weights")
    with pytest.raises(ValueError, match="not torchvision's AlexNet"):
        PerceptualDistance.load("lpips_alex")


def test_lpips_needs_64_pixels(random_alexnet: dict[str, torch.Tensor]) -> None:
    with pytest.raises(ValueError, match="64 pixels"):
        PerceptualDistance.load("lpips_alex")(np.zeros((63, 80, 3)), np.zeros((63, 80, 3)))


def test_an_unknown_distance_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="lpips_alex or effnet_lite0_5stage"):
        PerceptualDistance.load("lpips")


def test_offline_is_the_formula(offline: PerceptualDistance, photo: np.ndarray) -> None:
    """Cosines in float64: |f/|f| - g/|g||^2 = 2 - 2 cos."""
    other = gaussian_filter(photo, (1, 1, 0))
    total = 0.0
    stages = (offline.stages(torch.from_numpy(p).permute(2, 0, 1)[None].float()) for p in (photo, other))
    for features, others in zip(*stages, strict=True):
        f, g = features[0].double().numpy(), others[0].double().numpy()
        total += np.mean(2 - 2 * (f * g).sum(0) / np.sqrt((f**2).sum(0) * (g**2).sum(0)))
    assert offline(photo, other) == pytest.approx(total, rel=1e-4)


def test_offline_grows_with_every_degradation(offline: PerceptualDistance, photo: np.ndarray) -> None:
    noise = np.random.default_rng(0).standard_normal(photo.shape)
    lower = (np.arange(256) >= 128)[:, None, None]
    degradations = [
        [gaussian_filter(photo, (sigma, sigma, 0)) for sigma in (0.5, 1, 2, 4)],
        [np.clip(photo + noise * sigma / 255, 0, 1) for sigma in (1, 2, 5, 10, 25)],
        [np.clip(photo + lower * step / 255, 0, 1) for step in (1, 2, 4, 8, 16)],
    ]
    for pictures in degradations:
        distances = [0.0, *(offline(picture, photo) for picture in pictures)]
        assert distances == sorted(distances)
        assert len(set(distances)) == len(distances)


def test_distances_are_the_same_on_any_number_of_threads(offline: PerceptualDistance, photo: np.ndarray) -> None:
    other = gaussian_filter(photo, (1, 1, 0))
    found = []
    for threads in (1, 2, 3):
        with on_threads(threads):
            found.append((offline(photo, other), ssim(photo, other)))
    assert len(set(found)) == 1


def test_offline_is_a_distance(offline: PerceptualDistance, photo: np.ndarray) -> None:
    other = photo[::-1].copy()
    assert offline(photo, photo) == 0
    assert offline(photo, other) == pytest.approx(offline(other, photo), rel=1e-6)


def test_pictures_that_do_not_compare_are_refused(offline: PerceptualDistance) -> None:
    with pytest.raises(ValueError, match="same size"):
        offline(np.zeros((64, 64, 3)), np.zeros((64, 32, 3)))
    with pytest.raises(ValueError, match="uint8"):
        offline(np.zeros((64, 64, 3), np.uint8), np.zeros((64, 64, 3), np.uint8))
