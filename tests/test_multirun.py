"""What a launcher refuses before a grid starts, and two commands with one grid."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from otil_exp import app
from otil_exp.multirun import check_start
from otil_exp.run_folder.folder import RunFolder

SRUN = {
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
}
TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "TORCHELASTIC_RUN_ID": "x"}


@pytest.mark.parametrize(("environment", "who"), [(SRUN, "4 ranks that srun"), (TORCHRUN, "2 ranks that torchrun")])
def test_a_grid_inside_ranks_is_refused(environment: dict[str, str], who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match=who):
        check_start(OmegaConf.create({"hydra": {"sweeper": {}}}))


def test_a_grid_in_batches_is_refused_and_one_without_starts() -> None:
    with pytest.raises(SystemExit, match="max_batch_size=2: .*array_parallelism=N"):
        check_start(OmegaConf.create({"hydra": {"sweeper": {"max_batch_size": 2}}}))
    check_start(OmegaConf.create({"hydra": {"sweeper": {"max_batch_size": None}}}))


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (["hydra/launcher=slurm", "preset=otil"], "otil-exp -m hydra/launcher=slurm ..."),
        (["hydra/launcher=slurm_l40s"], "otil-exp -m hydra/launcher=slurm_l40s ..."),
        (["-m", "preset=otil", "hydra.sweeper.max_batch_size=2"], "references run first: leave it out"),
    ],
)
def test_what_is_typed_reaches_these_rules(
    typed: list[str], sentence: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["otil-exp", *typed, f"output_dir={tmp_path}"])
    with pytest.raises(SystemExit, match=re.escape(sentence)):
        app.main()


@pytest.mark.ranks
def test_two_shells_with_one_grid_both_end_well_and_no_cell_is_run_twice(tmp_path: Path) -> None:
    small = ("device=cpu", "num_inference_steps=2", "warmup_steps=0", "metrics=none", "prompts.limit=1")
    grid = ("preset=reference,balanced", "topology=2gpu_nosplit", f"output_dir={tmp_path}", "name=t")
    shells = [
        subprocess.Popen(
            [sys.executable, "-m", "otil_exp.app", "-m", *small, *grid],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        said = [shell.communicate(timeout=200)[0] for shell in shells]
    finally:
        for shell in shells:
            shell.kill()
    assert [shell.returncode for shell in shells] == [0, 0], said
    assert sum(words.count("done already, skipped") for words in said) == 2  # of four: each cell ran in one of them
    folders = [RunFolder(path.parent) for path in (tmp_path / "t").glob("*/record.json")]
    assert [folder.record["status"] for folder in folders] == ["done", "done"]
    assert not any(folder.record.get("resumed") for folder in folders)
