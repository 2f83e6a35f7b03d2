"""Scores of a run folder made by hand: against the reference beside it, however the pictures are shared out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from otil_exp.config import MetricsConfig
from otil_exp.run.scores import Share, is_scored, score_run
from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.reference import find_reference
from otil_exp.run_folder.steps import StepRow

SIDE = 64
ALL = MetricsConfig(
    psnr=True,
    ssim=True,
    perceptual="effnet_lite0_5stage",
    seams=True,
    extractors=["shapes_classifier"],
    ground_truth="renders",
    text_image="shapes_text_image",
)


def grey(level: int) -> Image.Image:
    return Image.new("RGB", (SIDE, SIDE), (level, level, level))


def noise(seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8))


CAPTION = "a large red circle on the left of a sky gradient"


def run_folder(
    path: Path, method: str, draw: Callable[[int], Image.Image], pictures: int = 2, key: str = "k"
) -> RunFolder:
    folder = RunFolder(path)
    prompts = [{"index": i, "text": CAPTION, "seed": i} for i in range(pictures)]
    alone = method == "reference"
    topology = {"name": "1gpu", "world_size": 1} if alone else {"name": "2gpu_nosplit", "world_size": 2}
    folder.update_record(
        status="done",
        method=method,
        is_reference=alone,
        picture_key=key,
        prompts=prompts,
        signature=path.name,
        topology=topology | {"split_batch": False},
        seams={"rows": [] if alone else [SIDE // 2], "columns": []},
    )
    folder.write_config({"height": SIDE, "width": SIDE})
    for prompt in range(pictures):
        folder.write_image(prompt, draw(prompt))
    row = StepRow(rank=0, prompt=0, step=0, kind="steady", ms=1.0, bytes_sent=10, collectives=1)
    folder.write_steps([row])
    return folder


def score(folder: RunFolder, settings: MetricsConfig, world_size: int = 1) -> dict[str, Any]:
    """Score as `world_size` ranks would, one after the other: rank 0 last, with everyone's results."""
    handed: dict[int, list[Any]] = {}

    def hand_in(rank: int) -> Callable[[Any], list[Any]]:
        def gather(value: Any) -> list[Any]:
            handed.setdefault(rank, []).append(value)
            turn = len(handed[rank]) - 1
            return [handed[other][turn] for other in range(world_size)] if rank == 0 else []

        return gather

    for rank in reversed(range(world_size)):
        score_run(folder, settings, Share(rank, world_size, hand_in(rank)))
    return folder.metrics


def test_a_run_is_compared_with_the_reference_beside_it(tmp_path: Path) -> None:
    """One grey level off in one picture, two in the other: 48.1308 and 42.1102 dB, mean 45.1205, error 6.0206 / 2."""
    run_folder(tmp_path / "another", "reference", lambda _: grey(0), key="another model")
    run_folder(tmp_path / "ref", "reference", lambda _: grey(100))
    folder = run_folder(tmp_path / "run", "otil", lambda i: grey(101 + i))
    entry = score(folder, MetricsConfig(psnr=True))["ref/psnr"]
    assert entry["value"] == pytest.approx(45.1205, abs=1e-4)
    assert entry["standard_error"] == pytest.approx(3.0103, abs=1e-4)
    assert entry["per_image"] == pytest.approx({"00": 48.1308, "01": 42.1102}, abs=1e-4)
    assert (entry["unit"], entry["n"], entry["identical"]) == ("dB", 2, 0)


def test_identical_pictures_are_capped_and_counted(tmp_path: Path) -> None:
    run_folder(tmp_path / "ref", "reference", noise)
    metrics = score(run_folder(tmp_path / "run", "otil", noise), ALL)
    assert (metrics["ref/psnr"]["value"], metrics["ref/psnr"]["identical"]) == (100, 2)
    assert metrics["ref/ssim"]["value"] == pytest.approx(1)
    assert metrics["ref/effnet_lite0_5stage"]["value"] == 0
    assert metrics["frechet_shapes/orig"]["value"] == pytest.approx(0, abs=1e-9)
    assert metrics["ref/step_levels"]["value"] == 0
    assert metrics["seam/step_levels"]["value"] == metrics["reference/step_levels"]["value"]
    assert metrics["seam/step_levels"]["boundaries"] == ["row 32"]


def test_results_do_not_depend_on_how_the_pictures_are_shared_out(tmp_path: Path) -> None:
    """5 pictures over 1, 2 and 4 ranks, and over 7, of which two have none: the same file, to the last digit."""
    run_folder(tmp_path / "ref", "reference", lambda i: noise(100 + i), pictures=5)
    folder = run_folder(tmp_path / "run", "otil", noise, pictures=5)
    texts = []
    for world_size in (1, 2, 4, 7):
        (folder.path / "metrics.json").unlink(missing_ok=True)
        texts.append(json.dumps(score(folder, ALL, world_size)))
    assert len(set(texts)) == 1
    assert json.loads(texts[0])["frechet_shapes/gt"]["n"] == 5


def test_without_a_reference_the_metric_says_what_to_run(tmp_path: Path) -> None:
    run_folder(tmp_path / "ref", "reference", lambda _: grey(100)).update_record(status="failed")
    folder = run_folder(tmp_path / "run", "otil", noise)
    assert find_reference(folder) is None
    metrics = score(folder, ALL)
    assert metrics["ref/psnr"]["value"] is None
    assert "preset=reference" in metrics["ref/psnr"]["missing"]
    assert metrics["seam/step_levels"]["n"] == 2
    assert "needs 2 pictures" in metrics["frechet_shapes/orig"]["missing"]


def test_a_reference_with_other_seeds_is_none(tmp_path: Path) -> None:
    other = [{"index": 0, "text": "a", "seed": 9}]
    run_folder(tmp_path / "ref", "reference", lambda _: grey(100)).update_record(prompts=other)
    assert find_reference(run_folder(tmp_path / "run", "otil", lambda _: grey(100))) is None


def test_one_picture_has_no_set_distance_and_no_error(tmp_path: Path) -> None:
    run_folder(tmp_path / "ref", "reference", noise, pictures=1)
    metrics = score(run_folder(tmp_path / "run", "otil", noise, pictures=1), ALL)
    assert metrics["frechet_shapes/orig"]["value"] is None
    assert metrics["ref/psnr"]["standard_error"] is None


def test_a_broken_run_beside_this_one_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "record.json").write_text('{"status": "do')
    run_folder(tmp_path / "ref", "reference", noise)
    folder = run_folder(tmp_path / "run", "otil", noise)
    reference = find_reference(folder)
    assert reference is not None
    assert reference.path.name == "ref"


def test_scores_are_asked_for_again_when_the_reference_or_the_metrics_change(tmp_path: Path) -> None:
    folder, psnr = run_folder(tmp_path / "run", "otil", noise), MetricsConfig(psnr=True)
    assert not is_scored(folder, psnr)
    score(folder, psnr)
    assert is_scored(folder, psnr)
    assert not is_scored(folder, MetricsConfig(psnr=True, ssim=True))
    run_folder(tmp_path / "ref", "reference", noise)
    assert not is_scored(folder, psnr)
    score(folder, psnr)
    assert is_scored(folder, psnr)
