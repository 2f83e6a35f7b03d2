"""What a dry run says, with earlier runs made by hand."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from composing import Compose
from otil_exp.cells.grid import check_grid
from otil_exp.run_folder.folder import RunFolder
from otil_exp.slurm.dry_run import describe
from otil_exp.slurm.settings import SlurmSettings


def test_hours_are_those_of_earlier_runs_of_the_same_kind(
    composed: Compose, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two pictures took 20 s and 40 s, 15 s each; the cell is to make 2 of 3, so 30 s of 2 ranks."""
    monkeypatch.setattr("submitit.slurm.slurm.SlurmExecutor.affinity", staticmethod(lambda: 2))  # whether srun is here
    typed = ("preset=balanced", "topology=2gpu_nosplit", "prompts.limit=3", "device=cpu")
    [member] = check_grid([composed(*typed)], [" ".join(typed)])
    what = member.cell.effective
    for name, ended, status in (
        ("a", "00:00:20", "done"),
        ("b", "00:00:40", "done"),
        ("interrupted", "09:00:00", "done"),
        ("failed", "00:00:01", "failed"),
    ):
        folder = RunFolder(tmp_path / "earlier" / name)
        folder.update_record(
            status=status,
            method="balanced",
            engine="eager",
            device="cpu",
            topology={"world_size": 2, "split_batch": False},
            prompts=[{"index": index, "text": "a", "seed": index} for index in range(2)],
            started="2026-01-01T00:00:00+00:00",
            ended=f"2026-01-01T{ended}+00:00",
            resumed=["2026-01-01T08:00:00+00:00"] if name == "interrupted" else [],
        )
        folder.write_config(
            {
                "height": what.height,
                "width": what.width,
                "num_inference_steps": what.num_inference_steps,
                "model": {"name": what.model.name},
            }
        )
    member.cell.folder.images.mkdir(parents=True)
    (member.cell.folder.images / "00.png").touch()
    console = Console(file=StringIO(), width=200)
    settings = SlurmSettings(submitit_folder=str(tmp_path / "%j"), timeout_min=30, partition="a")
    describe([member], settings, tmp_path, console)
    assert isinstance(console.file, StringIO)
    said = console.file.getvalue()
    assert "one job, 1 cells, each job 1 nodes x 2 ranks, no GPUs, at most 30 min" in said
    assert f"about {2 * 15 / 3600:.2g} h of jobs, 0 GPU hours, by 2 earlier runs" in said
    assert "#SBATCH --partition=a" in said
    assert "#SBATCH --ntasks-per-node=2" in said
    assert not list(tmp_path.glob("*/*.sh"))
