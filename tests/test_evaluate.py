"""otil-exp-evaluate: the same scores later, and what it refuses."""

from __future__ import annotations

import json
import math
import shutil
import sys
from concurrent.futures import Future
from pathlib import Path

import pytest
import torch
from rich.console import Console

from otil_exp import evaluate
from otil_exp.config import MetricsConfig
from otil_exp.evaluate import devices_of
from report.folders import add_pictures, make_reference, make_run
from test_app import folders, otil_exp
from whole_grid import runs_of

EVALUATE = (sys.executable, "-m", "otil_exp.evaluate")


@pytest.mark.ranks
def test_scoring_later_gives_what_four_ranks_gave_to_the_last_digit(tmp_path: Path, finished_grid: Path) -> None:
    grid = tmp_path / "t"
    for method, world_size in (("reference", 1), ("balanced", 4)):
        [folder] = runs_of(finished_grid, method, world_size)
        shutil.copytree(folder.path, grid / folder.path.name)
    runs = folders(tmp_path)
    in_job = {method: folder.metrics for method, folder in runs.items()}
    assert in_job["balanced"]["frechet_shapes/orig"]["n"] == 3
    for folder in runs.values():
        (folder.path / "metrics.json").unlink()
    later = otil_exp(str(grid), "metrics=shapes", "--jobs=2", command=EVALUATE)
    assert later.returncode == 0, later.stderr
    assert "balanced" in later.stdout
    for method, folder in runs.items():
        assert json.dumps(folder.metrics, sort_keys=True) == json.dumps(in_job[method], sort_keys=True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nowhere",), "no finished run with pictures in nowhere"),
        (("nowhere", "preset=otil"), "only metrics can be chosen again"),
        (("nowhere", "metrics.perceptual=lpips"), "lpips_alex, effnet_lite0_5stage"),
        (("nowhere", "metrics.extractors=[vgg]"), "inception"),
        (("nowhere", "metrics=paper"), "alexnet"),
        (("nowhere", "metrics=nonsense"), "pairwise"),
        (("nowhere", "metrics.ground_truth=renders"), "metrics.extractors"),
    ],
)
def test_a_mistake_is_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    sentence: str,
) -> None:
    from otil_exp.evaluate import main

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main([*arguments]) == 1
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_runs_are_scored_over_the_gpus_there_are_or_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert devices_of("auto") == devices_of("cuda") == ["cuda:0", "cuda:1"]
    assert devices_of("cpu") == ["cpu"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert devices_of("auto") == ["cpu"]
    with pytest.raises(ValueError, match="--device=cuda: there is no GPU here; use --device=cpu"):
        devices_of("cuda")


class Pool:
    """Stands for processes: notes what each is asked to score, in the order of asking."""

    def __init__(self, asked: list[tuple[str, str]]) -> None:
        self.asked = asked

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None: ...

    def submit(self, score: object, path: Path, settings: object, device: str) -> Future[None]:
        self.asked.append((path.name, device))
        done: Future[None] = Future()
        done.set_result(None)
        return done


def test_runs_take_the_devices_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(evaluate, "ProcessPoolExecutor", lambda *jobs, **options: Pool(asked))
    folders = [make_run(tmp_path, name) for name in "abc"]
    assert evaluate.score_all(folders, MetricsConfig(), 2, ["cuda:0", "cuda:1"], Console()) == []
    assert asked == [("a", "cuda:0"), ("b", "cuda:1"), ("c", "cuda:0")]


def test_finished_runs_are_scored_beside_their_reference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Flat grey of 100; 101 above the middle and 109 below: errors of 1 and 9 levels, 41 levels^2 in the mean."""
    preset = {"preset": {"parallelism": "none", "split_scheme": None}}
    make_reference(tmp_path, config=preset)
    run = make_run(tmp_path, "1", config=preset)
    add_pictures(run, level=101, below=8)
    assert evaluate.main([str(tmp_path), "metrics=none", "metrics.psnr=true", "--jobs=1", "--device=cpu"]) == 0
    assert run.metrics["ref/psnr"]["value"] == pytest.approx(20 * math.log10(255) - 10 * math.log10(41))
    assert "otil" in capsys.readouterr().out


def test_a_folder_with_an_equals_sign_in_its_name_is_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hydra's own names of folders are like that: preset=otil,k=k16."""
    folder = tmp_path / "preset=otil"
    folder.mkdir()
    assert evaluate.main([str(folder)]) == 1
    assert f"no finished run with pictures in {folder}" in capsys.readouterr().err
    assert evaluate.main([f"{folder}=more"]) == 1
    assert "only metrics can be chosen again" in capsys.readouterr().err
