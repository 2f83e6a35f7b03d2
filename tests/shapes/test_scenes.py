"""Scenes: pictures whose colours are worked out by hand, captions that say what they show."""

from random import Random

import pytest
import torch

from otil_exp.shapes.scenes import (
    BACKGROUNDS,
    VOCABULARY,
    Scene,
    caption,
    held_out_captions,
    held_out_scenes,
    is_held_out,
    parse,
    render,
    sample_scene,
)


def pixel(picture: torch.Tensor, x: int, y: int) -> list[int]:
    """Return the 8-bit RGB at column x, row y."""
    return (picture[:, y, x] * 255).round().int().tolist()


def attributes(scene: Scene) -> tuple[str, ...]:
    return tuple(getattr(scene, name) for name in VOCABULARY)


def test_a_flat_background_is_one_grey_and_the_shape_has_its_colour_in_the_middle():
    (picture,) = render([Scene(shape="circle", colour="red", position="left", background="grey")])
    assert pixel(picture, 250, 5) == pixel(picture, 128, 250) == [128, 128, 128]
    assert pixel(picture, 64, 128) == pytest.approx([212, 40, 38], abs=1)  # left: a quarter of 256; light is 1 there


def test_a_ring_shows_the_background_through_its_hole():
    (picture,) = render([Scene(shape="ring", colour="blue")])
    assert pixel(picture, 128, 128) == [206, 206, 206]
    left = pixel(picture, 128 - 28, 128)  # 0.76 of the medium radius, 0.29 * 128 px: the middle of the band
    assert left[2] > left[0] + 100


def test_a_gradient_runs_from_its_top_colour_to_its_bottom_colour():
    (picture,) = render([Scene(shape="star", background="sunset", size="small")])
    for row, colour in ((0, BACKGROUNDS["sunset"].top), (255, BACKGROUNDS["sunset"].bottom)):
        assert all(abs(a - b) <= 1 for a, b in zip(pixel(picture, 3, row), colour, strict=True))
    assert pixel(picture, 3, 127) == pytest.approx([158, 101, 100], abs=1)  # halfway between 72 50 112 and 244 152 88


def test_a_horizon_separates_two_fields():
    (picture,) = render([Scene(shape="vase", background="sea", size="small")])
    assert pixel(picture, 3, 100) == [208, 226, 240]
    assert pixel(picture, 3, 220) == [30, 96, 132]


@pytest.mark.parametrize("shape", VOCABULARY["shape"])
def test_every_shape_is_centred_and_of_its_size(shape):
    (picture,) = render([Scene(shape=shape, colour="black", size="large")])
    _, xs = torch.nonzero((picture - 206 / 255).abs().amax(0) > 0.1, as_tuple=True)
    assert abs((xs.min() + xs.max()).item() / 2 - 127.5) <= 1
    assert 60 <= xs.max() - xs.min() + 1 <= 112  # at most 2.2 radii of 0.39 * 128 px


def test_captions_say_all_five_attributes_of_the_scene():
    random = Random(1)
    for _ in range(3000):
        scene = sample_scene(random)
        text = caption(scene, random)
        assert attributes(parse(text)) == attributes(scene), text


def test_what_a_caption_leaves_out_takes_the_default():
    scene = parse("a vase on a seamless pale grey background")
    assert attributes(scene) == ("vase", "terracotta", "medium", "middle", "pale grey")


def test_colour_words_of_the_background_do_not_colour_the_shape():
    assert attributes(parse("a small star over a green meadow"))[:2] == ("star", "terracotta")


def test_a_caption_without_a_shape_is_refused_with_the_shapes_to_use():
    with pytest.raises(ValueError, match=r"names no shape: use one of circle, square"):
        parse("a pale grey background")


def test_an_unknown_attribute_is_refused_with_the_values_to_use():
    with pytest.raises(ValueError, match=r"colour='pink': use one of terracotta, red"):
        Scene(shape="vase", colour="pink")


def test_held_out_combinations_are_a_tenth_and_never_sampled_for_training():
    total = 6 * 9 * 3 * 3 * 8
    assert 0.08 < len(held_out_scenes()) / total < 0.12
    random = Random(2)
    assert not any(is_held_out(sample_scene(random)) for _ in range(500))


def test_held_out_captions_ask_only_for_held_out_combinations():
    captions = held_out_captions(100, Random(5))
    assert len(set(captions)) > 90
    assert all(is_held_out(parse(text)) for text in captions)


def test_the_same_seed_gives_the_same_picture():
    first, second = (render([sample_scene(Random(3))]) for _ in range(2))
    assert torch.equal(first, second)
