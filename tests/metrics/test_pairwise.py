"""Pairwise scores against values worked out by hand and in float64."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from skimage import data
from skimage.metrics import structural_similarity
from thread_counts import on_threads

import otil_exp.metrics
from otil_exp.metrics.pairwise import psnr, read_picture, ssim


def pair(height: int, width: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(height)
    picture = rng.random((height, width, 3))
    return picture, np.clip(picture + rng.normal(0, noise, picture.shape), 0, 1)


def ssim_in_float64(x: np.ndarray, y: np.ndarray) -> float:
    """Wang et al.'s Eq. 13 written out: one Gaussian window a pixel, edges mirrored, K1 = .01, K2 = .03."""
    t = np.arange(-5, 6)
    window = np.exp(-(t**2) / (2 * 1.5**2))
    window = np.outer(window, window) / window.sum() ** 2
    scores = []
    for c in range(3):
        a, b = (np.pad(p[..., c], 5, mode="reflect") for p in (x, y))
        for i, j in np.ndindex(x.shape[:2]):
            u, v = a[i : i + 11, j : j + 11], b[i : i + 11, j : j + 11]
            mu, mv = (window * u).sum(), (window * v).sum()
            su, sv, suv = (
                (window * u * u).sum() - mu**2,
                (window * v * v).sum() - mv**2,
                (window * u * v).sum() - mu * mv,
            )
            scores.append((2 * mu * mv + 1e-4) * (2 * suv + 9e-4) / ((mu**2 + mv**2 + 1e-4) * (su + sv + 9e-4)))
    return float(np.mean(scores))


def test_one_grey_level_everywhere_is_48_13_db() -> None:
    """MSE = (1/255)^2, so PSNR = 20 log10(255) = 48.1308 dB."""
    reference = np.full((4, 4, 3), 100 / 255)
    assert psnr(reference + 1 / 255, reference) == pytest.approx(48.1308036, abs=1e-6)


def test_dark_against_bright_does_not_wrap_around() -> None:
    """0 against 255 is the largest error there is: 0 dB (in uint8 arithmetic it would be 1, 48 dB)."""
    assert psnr(np.zeros((2, 2, 3)), np.ones((2, 2, 3))) == pytest.approx(0)


def test_identical_pictures_are_infinitely_close() -> None:
    assert psnr(np.full((2, 2, 3), 0.5), np.full((2, 2, 3), 0.5)) == math.inf


@pytest.mark.parametrize("score", [psnr, ssim])
def test_pictures_of_different_size_are_refused(score: object) -> None:
    with pytest.raises(ValueError, match="same size"):
        score(np.zeros((12, 12, 3)), np.zeros((12, 14, 3)))  # type: ignore[operator]


@pytest.mark.parametrize("score", [psnr, ssim])
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (np.full((12, 12, 3), 100, np.uint8), "uint8"),
        (np.full((12, 12, 3), 100.0), "from 100 to 100"),
        (np.full((12, 12, 3), np.nan), "nan"),
        (np.zeros((12, 12)), "H, W, 3"),
    ],
)
def test_what_is_no_float_picture_is_refused(score: object, wrong: np.ndarray, why: str) -> None:
    """So the unsigned wrap-around of integers, and a data range of 255, cannot be reached."""
    with pytest.raises(ValueError, match=why):
        score(wrong, wrong)  # type: ignore[operator]


def test_ssim_is_the_formula() -> None:
    x, y = pair(14, 17, 0.2)
    assert ssim(x, y) == pytest.approx(ssim_in_float64(x, y), abs=1e-12)


def ssim_of_scikit_image(x: np.ndarray, y: np.ndarray) -> float:
    """It leaves a border of 5 pixels out: mirrored ones before, so that exactly the picture's own are counted."""
    mirrored = [np.pad(p, ((5, 5), (5, 5), (0, 0)), mode="reflect") for p in (x, y)]
    return float(
        structural_similarity(
            *mirrored, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=1.0, channel_axis=2
        )
    )


@pytest.mark.parametrize(("height", "width"), [(11, 11), (32, 32), (37, 130), (64, 33), (96, 160)])
def test_ssim_is_scikit_image_s_at_every_size(height: int, width: int) -> None:
    """Whole tiles, parts of tiles, and less than one."""
    x, y = pair(height, width, 0.1)
    assert ssim(x, y) == pytest.approx(ssim_of_scikit_image(x, y), abs=1e-12)


def test_ssim_of_almost_flat_pictures_keeps_its_digits() -> None:
    """Where float32 is at its worst: variances far below the squares they are taken from."""
    rng = np.random.default_rng(0)
    x, y = (0.9 + rng.normal(0, 1 / 255, (16, 16, 3)) for _ in range(2))
    assert ssim(x, y) == pytest.approx(ssim_in_float64(x, y), abs=1e-12)


def test_ssim_of_bright_flat_fields() -> None:
    """Levels 252 and 255 have no structure: (2 a b + 1e-4) / (a^2 + b^2 + 1e-4) by hand; with noise, the formula."""
    a, b = 252 / 255, 1.0
    flat = [np.full((24, 24, 3), level) for level in (a, b)]
    assert ssim(*flat) == pytest.approx((2 * a * b + 1e-4) / (a * a + b * b + 1e-4), abs=1e-12)
    noisy = [np.clip(p - np.random.default_rng(i).random(p.shape) / 255, 0, 1) for i, p in enumerate(flat)]
    assert ssim(*noisy) == pytest.approx(ssim_in_float64(*noisy), abs=1e-12)


@pytest.mark.parametrize(
    "picture",
    [
        pair(20, 20, 0.1)[0],
        np.full((24, 24, 3), 252 / 255),
        np.full((40, 70, 3), 1.0),
        np.zeros((12, 12, 3)),
        data.astronaut() / 255,
        data.coffee() / 255,
        data.rocket().astype(np.float32) / 255,
    ],
    ids=["noise", "252", "white", "black", "astronaut", "coffee", "rocket"],
)
def test_ssim_of_identical_pictures_is_exactly_one(picture: np.ndarray) -> None:
    assert ssim(picture, picture.copy()) == 1.0


def test_ssim_does_not_depend_on_the_number_of_threads() -> None:
    x, y = pair(96, 160, 0.1)
    found = set()
    for threads in (1, 2, 4):
        with on_threads(threads):
            found.add(ssim(x, y))
    assert len(found) == 1


def test_ssim_knows_no_order() -> None:
    x, y = pair(20, 20, 0.1)
    assert ssim(x, y) == pytest.approx(ssim(y, x), abs=1e-15)


def test_ssim_needs_its_window() -> None:
    with pytest.raises(ValueError, match="11 pixels"):
        ssim(np.zeros((10, 20, 3)), np.zeros((10, 20, 3)))


def test_neither_psnr_nor_ssim_of_a_library_is_used() -> None:
    """torchmetrics' PSNR wraps around on integers, its PSNR-B grows with the batch, and its SSIM computes in the
    pictures' own format and squared windows: none is imported."""
    names = set()
    for path in Path(otil_exp.metrics.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names |= {alias.name.lower().replace("_", "") for alias in node.names}
    assert "extractor" in names
    assert not [name for name in names if "peaksignalnoise" in name or "similarityindex" in name]


def test_a_picture_is_read_as_floats(tmp_path: Path) -> None:
    Image.new("RGBA", (3, 2), (255, 51, 0, 128)).save(tmp_path / "a.png")
    picture = read_picture(tmp_path / "a.png")
    assert picture.shape == (2, 3, 3)
    assert picture[1, 2] == pytest.approx([1, 0.2, 0])


def test_a_picture_that_is_damaged_between_its_ends_is_named(tmp_path: Path) -> None:
    """Head and tail are those of a whole PNG, so that nothing but reading it tells."""
    path = tmp_path / "00.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    for broken in (path, tmp_path / "01.png"):
        with pytest.raises(ValueError, match=rf"{broken} cannot be read \(.*\): delete it, and the command"):
            read_picture(broken)
