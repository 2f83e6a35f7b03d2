"""otil-exp-evaluate: the same scores later, and what it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from otil_exp import evaluate
from test_app import SMALL, folders, otil_exp

EVALUATE = (sys.executable, "-m", "otil_exp.evaluate")


@pytest.mark.ranks
def test_scoring_later_gives_what_four_ranks_gave_to_the_last_digit(tmp_path: Path) -> None:
    cells = ("-m", "preset=reference,balanced", "topology=4gpu_split", "prompts.limit=3", f"output_dir={tmp_path}")
    done = otil_exp(*cells, *SMALL, "metrics=shapes")
    assert done.returncode == 0, done.stderr
    runs = folders(tmp_path)
    in_job = {method: folder.metrics for method, folder in runs.items()}
    assert in_job["balanced"]["frechet_shapes/orig"]["n"] == 3
    for folder in runs.values():
        (folder.path / "metrics.json").unlink()
    later = otil_exp(str(tmp_path / "t"), "metrics=shapes", "--jobs=2", command=EVALUATE)
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
