"""EfficientNet-Lite0 against numbers of its published PyTorch form and against what photos show."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from skimage import data
from torch import Tensor
from torch.nn import functional

from otil_exp.metrics.efficientnet import EfficientNetLite0
from otil_exp.metrics.repeatable import repeatable

ESPRESSO, CATS = 967, {281, 282, 285}
"""ImageNet's classes: espresso; tabby, tiger cat, Egyptian cat."""


@pytest.fixture(scope="module")
def network() -> EfficientNetLite0:
    return EfficientNetLite0.load()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with repeatable():
        yield


def waves() -> Tensor:
    i = torch.arange(3 * 224 * 224, dtype=torch.float64).reshape(1, 3, 224, 224)
    return (0.5 + 0.5 * torch.sin(i * 0.0137) * torch.cos(i * 0.00071)).float()


def photo(name: str) -> Tensor:
    """The middle square of a photo, (1, 3, H, H) in [0, 1]."""
    picture = torch.from_numpy(np.array(getattr(data, name)())).permute(2, 0, 1)[None].float() / 255
    height, width = picture.shape[-2:]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return picture[..., top : top + side, left : left + side]


def test_logits_and_features_are_those_of_the_published_network(network: EfficientNetLite0) -> None:
    """Expected: efficientnet-lite-pytorch 0.1.0 with the same weights, on the same 224 x 224 waves (float32)."""
    logits, features = network(waves())[0], network.features(waves())[0]
    assert logits[:6].numpy() == pytest.approx([-0.4201, 0.7602, -0.8888, -1.2682, -0.6888, 0.6149], abs=2e-4)
    assert features[:3].numpy() == pytest.approx([0.0903, 0, 0.2570], abs=2e-4)
    assert features.sum() == pytest.approx(94.9078, abs=2e-3)


def test_it_recognises_photos(network: EfficientNetLite0) -> None:
    assert int(network(photo("coffee")).argmax()) == ESPRESSO
    assert int(network(photo("chelsea")).argmax()) in CATS


def test_stages_halve_the_picture_five_times(network: EfficientNetLite0) -> None:
    shapes = [tuple(stage.shape) for stage in network.stages(torch.rand(2, 3, 96, 64))]
    assert shapes == [(2, 16, 48, 32), (2, 24, 24, 16), (2, 40, 12, 8), (2, 112, 6, 4), (2, 320, 3, 2)]


def test_features_do_not_depend_on_the_other_pictures(network: EfficientNetLite0) -> None:
    pictures = torch.rand(3, 3, 64, 64)
    together, alone = network.features(pictures), network.features(pictures[1:2])
    assert together.shape == (3, 1280)
    assert torch.allclose(together[1], alone[0], atol=1e-5)


def test_features_are_of_the_picture_resized_to_224(network: EfficientNetLite0) -> None:
    picture = photo("coffee")
    small = functional.interpolate(picture, (224, 224), mode="bilinear", antialias=True)
    assert torch.equal(network.features(picture), network.features(small))


def test_it_never_trains(network: EfficientNetLite0) -> None:
    before = network.features(waves())
    torch.nn.Sequential(network).train()
    assert not any(module.training for module in network.modules())
    assert not any(parameter.requires_grad for parameter in network.parameters())
    assert torch.equal(network.features(waves()), before)


@pytest.mark.parametrize(
    "pictures", [torch.zeros(3, 64, 64), torch.zeros(1, 3, 64, 31), torch.zeros(1, 3, 64, 64, dtype=torch.uint8)]
)
def test_other_inputs_are_refused(network: EfficientNetLite0, pictures: Tensor) -> None:
    with pytest.raises(ValueError, match="at least 32 pixels"):
        network.stages(pictures)
