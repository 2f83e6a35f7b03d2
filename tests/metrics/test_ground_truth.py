"""Ground truth pictures: in order, of the run's size, the same whoever asks for them."""

from __future__ import annotations

import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from otil_exp.metrics.frechet import frechet_distance
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


def test_other_sizes_are_resized_by_lanczos(folder: Path) -> None:
    pictures = FolderPictures(folder, height=8, width=6)
    wanted = np.asarray(Image.open(folder / "b.png").resize((6, 8), Image.Resampling.LANCZOS))
    assert ((pictures[1] * 255).round().permute(1, 2, 0).numpy() == wanted).all()


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
    assert FolderPictures(other, height=8, width=6)[0] == pytest.approx(214 / 255)  # 0.2 * 51 + 0.8 * 255 = 214.2


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


RAMP = np.linspace(0, 1, 48).reshape(8, 6)
"""Every file below shows this, black to white."""


def as_files(folder: Path) -> dict[str, Path]:
    """The ramp in forms that other programs leave."""
    sixteen = (RAMP * 65535).round().astype(np.uint16)
    save(folder / "16.png", sixteen)
    save(folder / "16.tif", sixteen)
    save(folder / "float.tif", RAMP.astype(np.float32))
    Image.fromarray((RAMP * 255).round().astype(np.uint8)).convert("P").save(folder / "palette.gif")
    Image.fromarray((RAMP * 255).round().astype(np.uint8)).convert("CMYK").save(folder / "cmyk.tif")
    return {path.name: path for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["16.png", "16.tif", "float.tif", "palette.gif", "cmyk.tif"])
def test_every_form_of_a_picture_shows_what_a_viewer_shows(tmp_path: Path, name: str) -> None:
    as_files(tmp_path)
    for other in tmp_path.iterdir():
        if other.name != name:
            other.unlink()
    picture = FolderPictures(tmp_path, height=8, width=6)[0]
    wanted = np.broadcast_to((RAMP * 255).round() / 255, (3, 8, 6))
    assert picture.numpy() == pytest.approx(wanted, abs=1e-6)


def test_sixteen_bit_grey_is_at_no_distance_from_the_same_in_eight(tmp_path: Path) -> None:
    random, sets = np.random.default_rng(0), []
    levels = random.integers(0, 256, (4, 8, 6))
    for name, grey in (("eight", levels.astype(np.uint8)), ("sixteen", (levels * 257).astype(np.uint16))):
        (tmp_path / name).mkdir()
        for index, values in enumerate(grey):
            save(tmp_path / name / f"{index}.png", values)
        pictures = FolderPictures(tmp_path / name, height=8, width=6)
        sets.append(np.stack([picture.numpy().ravel() for picture in pictures]).astype(np.float64))
    assert frechet_distance(*sets) == 0


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB"])
def test_what_is_transparent_is_white_whatever_colour_is_hidden_there(tmp_path: Path, mode: str) -> None:
    """Left half hidden, right half black."""
    black = np.zeros((8, 6, 4), np.uint8)
    black[..., 3] = 255
    if mode == "RGBA":
        black[:, :3] = (200, 30, 90, 0)
        Image.fromarray(black).save(tmp_path / "a.png")
    elif mode == "LA":
        black[:, :3] = (90, 90, 90, 0)
        Image.fromarray(black).convert("LA").save(tmp_path / "a.png")
    else:
        black[:, :3, 0] = 77
        colours = Image.fromarray(black).convert("RGB")
        if mode == "P":
            colours = Image.fromarray((black[..., 0] > 0).astype(np.uint8)).convert("P")
            colours.putpalette([0, 0, 0, 77, 0, 0])
        colours.save(tmp_path / "a.png", transparency=1 if mode == "P" else (77, 0, 0))
    picture = FolderPictures(tmp_path, height=8, width=6)[0]
    assert (picture[..., :3] == 1).all()
    assert (picture[..., 3:] == 0).all()


def test_what_macos_leaves_beside_pictures_is_passed_over(folder: Path) -> None:
    (folder / "._a.PNG").write_bytes(b"\x00\x05\x16\x07")
    (folder / ".hidden.png").write_text("no picture")
    pictures = FolderPictures(folder, height=8, width=6)
    assert [path.name for path in pictures.paths] == ["a.PNG", "b.png", "c.bmp"]
    pictures.check()


def test_a_picture_of_too_many_pixels_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 60)  # a.PNG has 48, b.png 192
    pictures = FolderPictures(folder, height=8, width=6)
    for look in (pictures.check, lambda: pictures[1]):
        with pytest.raises(ValueError, match=r"b\.png has too many pixels .*: make it smaller"):
            look()
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # from 100 to 200 Pillow warns only
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pictures[1].shape == (3, 8, 6)


def test_values_whose_white_nobody_knows_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "integers.tif", np.full((8, 6), 70000, np.int32))
    with pytest.raises(ValueError, match=r"integers\.tif holds 32-bit integers"):
        FolderPictures(tmp_path, 8, 6)[0]
    (tmp_path / "integers.tif").unlink()
    save(tmp_path / "floats.tif", np.full((8, 6), 255, np.float32))
    with pytest.raises(ValueError, match=r"floats\.tif has values from 255 to 255, and white is 1"):
        FolderPictures(tmp_path, 8, 6)[0]


@pytest.mark.parametrize("suffix", ["png", "jpg", "tif", "bmp", "gif", "webp", "ppm"])
def test_a_file_that_is_cut_anywhere_is_named_and_never_a_raw_error(tmp_path: Path, suffix: str) -> None:
    whole = tmp_path / f"a.{suffix}"
    save(whole, np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    content = whole.read_bytes()
    pictures = FolderPictures(tmp_path, 64, 64)
    for part in (0, 3, 20, 60, len(content) // 2):
        whole.write_bytes(content[:part])
        said = None
        try:
            assert pictures[0].shape == (3, 64, 64)  # formats without a length show what there is
        except ValueError as error:
            said = str(error)
        assert said is None or f"a.{suffix} is" in said


def test_which_pictures_these_are_is_told_by_names_and_sizes(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pictures = FolderPictures(folder, height=8, width=6)
    assert (pictures.identity["path"], pictures.identity["count"]) == (str(folder), 3)
    elsewhere = tmp_path_factory.mktemp("copy")
    for path in pictures.paths:
        (elsewhere / path.name).write_bytes(path.read_bytes())
    copy = FolderPictures(elsewhere, height=8, width=6)
    assert copy.identity["digest"] == pictures.identity["digest"]
    (elsewhere / "d.bmp").write_bytes((elsewhere / "c.bmp").read_bytes())
    assert FolderPictures(elsewhere, height=8, width=6).identity["digest"] != pictures.identity["digest"]


CAPTIONS = ["a large red circle on the left of a sky gradient", "a blue star", "a blue star"]


def test_other_pictures_of_the_same_names_and_sizes_are_other_ones(tmp_path: Path) -> None:
    """Uncompressed files of one size have one number of bytes, whatever they show."""
    for name, grey in (("dark", 40), ("light", 200)):
        (tmp_path / name).mkdir()
        for picture in ("a.bmp", "b.bmp"):
            save(tmp_path / name / picture, np.full((8, 6, 3), grey, np.uint8))
    dark, light = (FolderPictures(tmp_path / name) for name in ("dark", "light"))
    sizes = [[size for _, size, _ in pictures.files] for pictures in (dark, light)]
    assert sizes[0] == sizes[1]
    assert dark.identity["digest"] != light.identity["digest"]


def test_a_link_to_nothing_is_named_and_a_folder_is_passed_over_whatever_its_name(folder: Path) -> None:
    (folder / "more.png").mkdir()
    assert len(FolderPictures(folder)) == 3
    (folder / "d.png").symlink_to(folder / "gone.png")
    with pytest.raises(ValueError, match=r"ground truth .*d\.png: No such file or directory; put it there or take"):
        FolderPictures(folder)


def test_a_transparent_grey_of_sixteen_bits_is_white(tmp_path: Path) -> None:
    """Written by hand, as Pillow does not: two pixels of 40,000, which a tRNS chunk makes transparent, and 0."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    row = zlib.compress(b"\0" + struct.pack(">HHH", 40_000, 0, 40_000))
    header = struct.pack(">IIBBBBB", 3, 1, 16, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"tRNS", struct.pack(">H", 40_000)), (b"IDAT", row), (b"IEND", b""))
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*one) for one in chunks))
    assert FolderPictures(tmp_path)[0][0].tolist() == [[1.0, 0.0, 1.0]]


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
