"""One entry a metric: what scoring makes, what the documents list, and what a report shows are the same keys."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from otil_exp.config import MetricsConfig
from otil_exp.metrics.checks import check_metrics
from otil_exp.metrics.extractors import Extractor
from otil_exp.metrics.picture import Scorers, score_picture
from otil_exp.metrics.registry import COST, METRICS, PAIRED, STAGES, lookup, paired_names
from otil_exp.metrics.seam import Boundaries
from otil_exp.metrics.summary import Truth, summarise
from otil_exp.run.benchmark import image_latency
from otil_exp.run.cost import cost_metrics, memory_metrics, stage_metrics
from otil_exp.run_folder.folder import StepRow

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([a-z0-9_]+/[a-z0-9_]+)` \| (\S+) \| (\S+) \|", DOCUMENT, re.M)
FAMILIES = "|".join(sorted({metric.key.partition("/")[0] for metric in METRICS}))

EVERYTHING = MetricsConfig(
    psnr=True,
    ssim=True,
    paired=paired_names(),
    seams=True,
    extractors=["inception", "inception_clean", "effnet_lite0", "shapes_classifier"],
    ground_truth="renders",
    text_image="a CLIP",
)
NAMES = {
    "inception": ("fid", "kid"),
    "inception_clean": ("fid_clean", "kid_clean"),
    "effnet_lite0": ("frechet_effnet_lite0", "kernel_effnet_lite0"),
    "shapes_classifier": ("frechet_shapes", "kernel_shapes"),
}


class Text:
    """Stands for a CLIP, whose weights no test has."""

    truncated = 0

    def __init__(self, name: str) -> None:
        self.name = name

    def similarity(self, picture: Tensor, caption: str) -> float:
        return 0.25


def extractor(name: str) -> Extractor:
    """Stands for a network: the mean colour."""
    frechet, kernel = NAMES[name]
    return Extractor(
        name=name,
        frechet_name=frechet,
        kernel_name=kernel,
        size=3,
        resize="none",
        backend="test",
        device=torch.device("cpu"),
        network=lambda picture: picture.mean((2, 3)),
    )


def scored(
    folder: Path, pictures: int, *, reference: bool, boundaries: Boundaries, text: str = "a CLIP"
) -> dict[str, Any]:
    """Metrics of so many pictures of noise, with all that can be asked for asked for, by stand-ins for networks."""
    paired = {metric.key: lambda own, other: float(abs(own - other).mean()) for metric in PAIRED}
    names = EVERYTHING.extractors
    scorers = Scorers(EVERYTHING, paired, [extractor(name) for name in names], Text(text))  # type: ignore[arg-type]
    scores = []
    for i in range(pictures):
        paths = [folder / f"{i}.png", folder / f"{i}_reference.png"]
        for seed, path in enumerate(paths):
            noise = np.random.default_rng([i, seed]).integers(0, 256, (256, 64, 3), dtype=np.uint8)
            Image.fromarray(noise).save(path)
        scores.append(score_picture(scorers, i, "a caption", paths[0], paths[1] if reference else None, boundaries))
    truth = Truth({"path": "renders"}, {name: np.random.default_rng(0).random((pictures, 3)) for name in names}, True)
    return summarise(scorers, scores, boundaries, truth, "run the reference")


def cost() -> dict[str, Any]:
    rows = [
        StepRow(rank=0, prompt=0, step=step, kind=kind, ms=1.0, bytes_sent=10, collectives=1)
        for step, kind in enumerate(("warmup", "steady", "refresh"))
    ]
    stages = stage_metrics({"stages": {"shares": [0.5, 0.5], "ends": ["down0.down", "up1.attn0"], "ages": [0, 1]}})
    taken = {"latency/image_s": image_latency([1.0, 2.0], 0)}
    return cost_metrics(rows, warm=True) | memory_metrics({}) | stages | taken


SEAM = Boundaries(rows=(128,))


def test_the_documented_keys_are_those_of_the_registry() -> None:
    arrows = {"less": -1, "more": 1, "-": 0}
    documented = {key: (unit, arrows[better]) for key, unit, better in ROWS}
    assert len(ROWS) == len(documented)
    assert documented == {metric.key: (metric.unit, metric.better) for metric in METRICS}


def test_every_documented_key_is_made_where_all_is_there(tmp_path: Path) -> None:
    made = cost() | scored(tmp_path, 4, reference=True, boundaries=SEAM)
    by_shapes = scored(tmp_path, 4, reference=True, boundaries=SEAM, text="shapes_text_image")
    made["text/shapes_text_image"] = by_shapes["text/shapes_text_image"]
    assert {key for key, _, _ in ROWS} == set(made)
    assert [key for key, entry in made.items() if entry["value"] is None] == ["memory/peak_mib"]
    assert all(entry["unit"] == lookup(key).unit for key, entry in made.items())


def test_values_of_single_pictures_are_in_the_unit_of_their_mean(tmp_path: Path) -> None:
    """Differences of two methods are taken of them, prompt by prompt, and shown beside the means."""
    made = scored(tmp_path, 4, reference=True, boundaries=SEAM)
    single = {key: entry for key, entry in made.items() if "per_image" in entry}
    assert {"ref/psnr", "ref/step_levels", "text/clip_score", "seam/step_z"} <= set(single)
    for key, entry in single.items():
        values = [float(np.mean(value)) for value in entry["per_image"].values()]
        assert len(values) == entry["n"] == 4, key
        assert entry["value"] == pytest.approx(np.mean(values), rel=1e-12), key
        assert entry["standard_error"] == pytest.approx(np.std(values, ddof=1) / 2, rel=1e-9, abs=1e-12), key


@pytest.mark.parametrize("reference", [True, False])
@pytest.mark.parametrize("boundaries", [SEAM, Boundaries()])
def test_every_documented_key_says_why_it_is_not_there(tmp_path: Path, reference: bool, boundaries: Boundaries) -> None:
    """One picture, no reference, no boundary: nothing of what was asked for is left out without a word."""
    made = cost() | scored(tmp_path, 1, reference=reference, boundaries=boundaries)
    assert {key for key, _, _ in ROWS} - {"text/shapes_text_image"} == set(made)
    assert all(entry["missing"] for entry in made.values() if entry["value"] is None)
    assert "needs 2 pictures on both sides" in made["kid/orig"]["missing"]
    assert "has 1 and 1" in made["kid/gt"]["missing"]
    if not reference:
        assert made["ref/psnr"]["missing"] == "run the reference"
    elif not boundaries.labels:
        assert "no boundary" in made["ref/ser_z"]["missing"]


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))])
def test_no_page_names_a_metric_that_does_not_exist(page: str) -> None:
    known = {metric.key for metric in METRICS} | {"ref/mean_error"}  # the guide's example of a new one
    named = re.findall(rf"`((?:{FAMILIES})/[a-z0-9_]+)[`=]", (ROOT / page).read_text(encoding="utf-8"))
    assert sorted(set(named) - known) == []


def test_keys_are_named_once_and_those_of_networks_as_the_networks_say() -> None:
    keys = [metric.key for metric in METRICS]
    assert len(set(keys)) == len(keys)
    for name, (frechet, kernel) in NAMES.items():
        of_it = {metric.key for metric in METRICS if metric.model == name and not metric.load}
        assert of_it == {f"{kind}/{against}" for kind in (frechet, kernel) for against in ("orig", "gt")}


def test_kernel_distances_are_shown_at_a_readable_scale() -> None:
    """Shapes features make kernels of thousands, Inception's and EfficientNet's of thousandths."""
    scales = {key: lookup(key).scale for key in ("kid/orig", "kernel_effnet_lite0/gt", "kernel_shapes/orig", "fid/gt")}
    assert scales == {"kid/orig": 1e3, "kernel_effnet_lite0/gt": 1e3, "kernel_shapes/orig": 1e-3, "fid/gt": 1}


def test_a_key_of_another_version_is_shown_under_its_own_name() -> None:
    assert (lookup("ref/of_2030").title, lookup("ref/of_2030").better) == ("ref/of_2030", 0)


def test_a_paired_score_is_asked_for_by_name_and_another_name_is_answered_with_the_choice() -> None:
    asked = MetricsConfig(paired=["ssim", "effnet_lite0_5stage"])
    check_metrics(asked)
    wanted = [metric.key for metric in METRICS if metric.wanted(asked) and metric not in (*COST, *STAGES)]
    assert wanted == ["ref/ssim", "ref/effnet_lite0_5stage"]
    assert list(Scorers.load(asked, "cpu").paired) == wanted
    with pytest.raises(
        ValueError, match=r"metrics\.paired=.*psnr, ssim,.* lpips_alex, effnet_lite0_5stage,?.* not mae"
    ):
        check_metrics(MetricsConfig(paired=["ssim", "mae"]))
