"""Ground truth pictures: in order, of the run's size, the same whoever asks for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from otil_exp.metrics.ground_truth import FolderPictures, ScenePictures
from otil_exp.shapes.scenes import parse, render


def save(path: Path, values: np.ndarray, **options: object) -> np.ndarray:
    Image.fromarray(values).save(path, **options)
    return values


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three pictures in names' order: 8 rows of 6 pixels, 16 x 12, and a grey one; a text file and a folder beside."""
    random = np.random.default_rng(0)
    save(tmp_path / "b.png", random.integers(0, 256, (16, 12, 3), dtype=np.uint8))
    save(tmp_path / "a.PNG", random.integers(0, 256, (8, 6, 3), dtype=np.uint8))
    save(tmp_path / "c.bmp", random.integers(0, 256, (8, 6), dtype=np.uint8))
    (tmp_path / "captions.txt").write_text("a, b, c")
    (tmp_path / "more").mkdir()
    return tmp_path


def test_a_picture_of_the_run_s_size_is_taken_as_it_is(folder: Path) -> None:
    picture = FolderPictures(folder, height=8, width=6)[0]
    assert picture.shape == (3, 8, 6)
    assert picture.dtype == torch.float32
    stored = np.asarray(Image.open(folder / "a.PNG"))
    assert ((picture * 255).round().permute(1, 2, 0).numpy() == stored).all()


def test_other_sizes_are_resized_by_lanczos_and_counted(folder: Path) -> None:
    pictures = FolderPictures(folder, height=8, width=6)
    assert pictures.count_resized() == 1
    wanted = np.asarray(Image.open(folder / "b.png").resize((6, 8), Image.Resampling.LANCZOS))
    assert ((pictures[1] * 255).round().permute(1, 2, 0).numpy() == wanted).all()
    assert FolderPictures(folder, height=32, width=32).count_resized() == 3


def test_the_order_is_that_of_the_names_and_shares_add_up(folder: Path) -> None:
    pictures = FolderPictures(folder, height=8, width=6)
    assert [path.name for path in pictures.paths] == ["a.PNG", "b.png", "c.bmp"]
    shares = [*pictures[0:2], *pictures[2:3], *pictures[3:]]
    assert len(pictures) == len(shares) == 3
    assert all(torch.equal(one, other) for one, other in zip(pictures, shares, strict=True))


def test_grey_and_transparent_pictures_become_rgb(folder: Path, tmp_path: Path) -> None:
    assert torch.equal(*FolderPictures(folder, height=8, width=6)[2][:2])
    other = tmp_path / "other"
    other.mkdir()
    save(other / "clear.png", np.full((8, 6, 4), 51, dtype=np.uint8))
    assert FolderPictures(other, height=8, width=6)[0] == pytest.approx(0.2)


def test_a_photo_that_lies_on_its_side_is_turned_upright(tmp_path: Path) -> None:
    """Orientation 6: shown after a quarter turn clockwise, so the left column comes to lie on top."""
    sideways = np.zeros((8, 16, 3), dtype=np.uint8)
    sideways[:, :8] = 255
    exif = Image.Exif()
    exif[0x0112] = 6
    save(tmp_path / "photo.jpg", sideways, exif=exif, quality=100)
    picture = FolderPictures(tmp_path, height=16, width=8)[0]
    assert picture[:, :7].min() > 0.9
    assert picture[:, 9:].max() < 0.1


def test_a_folder_without_pictures_and_a_broken_picture_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere is not a folder"):
        FolderPictures(tmp_path / "nowhere", 8, 8)
    with pytest.raises(ValueError, match="holds no pictures"):
        FolderPictures(tmp_path, 8, 8)
    (tmp_path / "words.png").write_text("no picture")
    with pytest.raises(ValueError, match=r"words\.png is not a picture"):
        FolderPictures(tmp_path, 8, 8)[0]
    save(tmp_path / "whole.png", np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    (tmp_path / "cut.png").write_bytes((tmp_path / "whole.png").read_bytes()[:4000])
    with pytest.raises(ValueError, match=r"cut\.png is broken"):
        FolderPictures(tmp_path, 8, 8)[0]


CAPTIONS = ["a large red circle on the left of a sky gradient", "a blue star", "a blue star"]


def test_scenes_are_what_their_captions_ask_for() -> None:
    pictures = ScenePictures(CAPTIONS, 32, 32)
    assert [picture.shape for picture in pictures] == [(3, 32, 32)] * 3
    for caption, scene in zip(CAPTIONS, pictures.scenes, strict=True):
        asked = parse(caption)
        assert all(getattr(scene, name) == getattr(asked, name) for name in ("shape", "colour", "size", "background"))
    assert torch.equal(pictures[1], render([pictures.scenes[1]], 32)[0])


def test_what_a_caption_leaves_open_varies_but_is_the_same_every_time() -> None:
    pictures = ScenePictures(CAPTIONS, 32, 32)
    assert not torch.equal(pictures[1], pictures[2])
    assert all(torch.equal(a, b) for a, b in zip(pictures, ScenePictures(CAPTIONS, 32, 32), strict=True))


def test_scenes_are_square_and_have_a_shape() -> None:
    with pytest.raises(ValueError, match="64x32: scenes are drawn square only, use height=32"):
        ScenePictures(CAPTIONS, 64, 32)
    with pytest.raises(ValueError, match="names no shape"):
        ScenePictures(["a photo of a cat"], 32, 32)
