"""What cannot be scored is refused before a picture is made, with what to type."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from composing import Compose
from otil_exp.cells.prepare import prepare
from otil_exp.config import MetricsConfig
from otil_exp.metrics.checks import check_ground_truth, check_scorable, check_weights

TRUTH = ("metrics.extractors=[shapes_classifier]", "device=cpu", "preset=reference")


def test_a_ground_truth_that_cannot_be_read_is_refused_while_composing(composed: Compose, tmp_path: Path) -> None:
    truth = tmp_path / "truth"
    asked = (*TRUTH, f"metrics.ground_truth={truth}")
    with pytest.raises(ValueError, match="truth is not a folder"):
        prepare(composed(*asked))
    truth.mkdir()
    with pytest.raises(ValueError, match="holds no pictures"):
        prepare(composed(*asked))
    Image.new("RGB", (8, 8)).save(truth / "a.png")
    with pytest.raises(ValueError, match="one picture"):
        prepare(composed(*asked))
    (truth / "b.png").write_text("no picture")
    with pytest.raises(ValueError, match=r"b\.png is not a picture"):
        prepare(composed(*asked))
    Image.new("RGB", (8, 8)).save(truth / "b.png")
    (truth / "._b.png").write_text("no picture")
    assert not (prepare(composed(*asked)).folder.path / "images").exists()


def test_renders_of_captions_or_sizes_that_cannot_be_drawn_are_refused_while_composing(composed: Compose) -> None:
    asked = ("metrics=shapes", "device=cpu", "preset=reference")
    with pytest.raises(ValueError, match="scenes are drawn square only, use height=128"):
        prepare(composed(*asked, "height=256", "width=128"))
    with pytest.raises(ValueError, match=r"truth=renders: 'a photo of a cat' names no shape.*use metrics=pairwise"):
        check_scorable(MetricsConfig(ground_truth="renders"), ["a blue star", "a photo of a cat"], 64, 64)


def test_a_picture_that_is_too_small_for_a_score_is_refused(composed: Compose) -> None:
    lpips = MetricsConfig(perceptual="lpips_alex")
    check_scorable(lpips, [], 64, 64)
    with pytest.raises(ValueError, match=r"height=32 width=64: ref/lpips_alex needs 64 pixels a side"):
        check_scorable(lpips, [], 32, 64)
    with pytest.raises(ValueError, match=r"ref/ssim needs 11 pixels"):
        prepare(composed("metrics.ssim=true", "height=8", "width=64", "device=cpu", "preset=reference"))


def test_all_weights_that_are_missing_are_named_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever fetches them on another machine goes there once."""
    monkeypatch.setattr("torch.hub.get_dir", lambda: str(tmp_path))
    with pytest.raises(FileNotFoundError) as missing:
        check_weights(MetricsConfig(perceptual="lpips_alex", extractors=["inception_clean"]))
    # The names under which torchvision and torch-fidelity publish them.
    assert str(missing.value).count("alexnet-owt-7be5be79.pth is not there") == 1
    assert str(missing.value).count("weights-inception-2015-12-05-6726825d.pth is not there") == 1
    check_weights(MetricsConfig(perceptual="effnet_lite0_5stage", extractors=["effnet_lite0"]))


def test_nothing_is_looked_at_where_no_ground_truth_is_asked_for() -> None:
    check_ground_truth(MetricsConfig())
    check_ground_truth(MetricsConfig(extractors=["shapes_classifier"], ground_truth="renders"))
