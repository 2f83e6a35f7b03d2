"""Cost and quality of a run, from a folder made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from otil_exp.config import MetricsConfig
from otil_exp.run.benchmark import image_latency
from otil_exp.run.folder import RunFolder, StepRow
from otil_exp.run.scores import cost_metrics, find_reference, score_run

PROMPTS = [{"index": 0, "text": "a", "seed": 0}, {"index": 1, "text": "b", "seed": 1}]


def row(rank: int, prompt: int, step: int, kind: str, ms: float, sent: int, collectives: int = 1) -> StepRow:
    return StepRow(rank=rank, prompt=prompt, step=step, kind=kind, ms=ms, bytes_sent=sent, collectives=collectives)


def run_folder(path: Path, method: str, grey: int, key: str = "k", status: str = "done") -> RunFolder:
    folder = RunFolder(path)
    folder.update_record(status=status, method=method, picture_key=key, prompts=PROMPTS, signature=path.name)
    for prompt in (0, 1):
        folder.write_image(prompt, Image.new("RGB", (4, 4), (grey, grey, grey)))
    folder.write_steps([row(0, p, 0, "steady", 1.0, 10) for p in (0, 1)])
    return folder


def test_cost_counts_steps_after_warm_up_and_forgets_the_first_picture() -> None:
    """Two pictures of a warm-up and a steady step on two ranks: the second picture's times, all pictures' bytes."""
    rows = [
        *[row(rank, 0, 0, "warmup", 900, 4000) for rank in (0, 1)],
        *[row(rank, 0, 1, "steady", 700, 100 + rank, 3) for rank in (0, 1)],
        *[row(rank, 1, 0, "warmup", 30, 4000) for rank in (0, 1)],
        *[row(rank, 1, 1, "steady", 10 + rank, 100 + rank, 3) for rank in (0, 1)],
    ]
    values = {key: metric["value"] for key, metric in cost_metrics(rows).items()}
    assert values == {
        "latency/step_ms": 10,
        "latency/step_ms_all": 20,
        "traffic/bytes_sent_per_step": 100.5,
        "traffic/bytes_sent_per_step_all": 2050.25,
        "traffic/collectives_per_step": 3,
    }


def test_a_run_is_compared_with_the_reference_beside_it(tmp_path: Path) -> None:
    """One grey level off in both pictures: 48.13 dB."""
    run_folder(tmp_path / "ref", "reference", 100)
    run_folder(tmp_path / "other", "reference", 0, key="another model")
    folder = run_folder(tmp_path / "run", "otil", 101)
    score_run(folder, MetricsConfig())
    score = folder.metrics["ref/psnr"]
    assert score["value"] == pytest.approx(48.1308, abs=1e-3)
    assert (score["unit"], score["n"], score["identical"], score["reference"]) == ("dB", 2, 0, "ref")


def test_identical_pictures_are_capped_and_counted(tmp_path: Path) -> None:
    run_folder(tmp_path / "ref", "reference", 100)
    folder = run_folder(tmp_path / "run", "otil", 100)
    score_run(folder, MetricsConfig())
    assert (folder.metrics["ref/psnr"]["value"], folder.metrics["ref/psnr"]["identical"]) == (100, 2)


def test_without_a_reference_the_metric_says_what_to_run(tmp_path: Path) -> None:
    run_folder(tmp_path / "ref", "reference", 100, status="failed")
    folder = run_folder(tmp_path / "run", "otil", 100)
    assert find_reference(folder) is None
    score_run(folder, MetricsConfig())
    assert folder.metrics["ref/psnr"]["value"] is None
    assert "preset=reference" in folder.metrics["ref/psnr"]["missing"]


def test_a_reference_with_other_seeds_is_none(tmp_path: Path) -> None:
    run_folder(tmp_path / "ref", "reference", 100).update_record(prompts=[{"index": 0, "text": "a", "seed": 9}])
    assert find_reference(run_folder(tmp_path / "run", "otil", 100)) is None


def test_latency_drops_the_extremes_and_keeps_the_samples() -> None:
    latency = image_latency([5.0, 1.0, 2.0, 3.0, 100.0], drop_extremes=1)
    assert latency["value"] == pytest.approx(10 / 3)
    assert (latency["n"], latency["dropped"], latency["samples"]) == (3, 2, [5.0, 1.0, 2.0, 3.0, 100.0])
