"""What sizes follow from the networks of a model."""

from __future__ import annotations

import pytest

from otil_exp.config import ModelConfig
from otil_exp.models.architecture import architecture_of


@pytest.mark.parametrize(("name", "channels"), [("sdxl", (320, 640, 1280)), ("shapes", (64, 128, 128))])
def test_three_levels_need_slices_of_32_pixel_rows(name: str, channels: tuple[int, ...]) -> None:
    """Two halvings, and a VAE of factor 8: 4 latent pixels a pixel of the lowest level."""
    architecture = architecture_of(ModelConfig(name=name, architecture=name))
    assert architecture.channels == channels
    assert (architecture.lowest, architecture.slice_unit) == (4, 32)


def test_groups_that_a_unet_leaves_out_are_those_of_diffusers() -> None:
    assert architecture_of(ModelConfig(architecture="sdxl")).norm_groups == 32
    assert architecture_of(ModelConfig(architecture="shapes")).norm_groups == 16


def test_an_architecture_that_is_none_is_answered_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="model.architecture=unet3: use one of sdxl, shapes"):
        architecture_of(ModelConfig(architecture="unet3"))
