"""Cells on ranks that stay, for real."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from otil_exp.run_folder.folder import RunFolder

FAULTS = Path(__file__).parent / "slurm" / "faults"


@pytest.mark.ranks
def test_a_packed_cell_that_fails_costs_only_itself(tmp_path: Path) -> None:
    """Rank 1 of the second of three cells dies: the first is done, the third gets fresh ranks."""
    command = [
        *(sys.executable, "-m", "otil_exp.app", "-m", "preset=full_sync,balanced,guide", "topology=2gpu_nosplit"),
        *("device=cpu", "num_inference_steps=3", "warmup_steps=0", "prompts.limit=1", "metrics=none", "name=t"),
        *(f"output_dir={tmp_path}", "hydra.launcher.pack=3"),
    ]
    faults = {
        "OTIL_EXP_FAULTS": "balanced:1:kill",
        "PYTHONPATH": os.pathsep.join([str(FAULTS), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=os.environ | faults)
    assert done.returncode == 1
    assert "1 of 3 cells failed: #1" in done.stderr
    folders = [RunFolder(path.parent) for path in (tmp_path / "t").glob("*/record.json")]
    records = {folder.record["method"]: folder.record for folder in folders}
    assert {method: record["status"] for method, record in records.items()} == {
        "full_sync": "done",
        "balanced": "failed",
        "guide": "done",
    }
    assert records["balanced"]["failed_rank"] == 1
    assert "SIGKILL" in records["balanced"]["error"]
    [failed] = [folder for folder in folders if folder.record["method"] == "balanced"]
    log = failed.logs / "rank1.log"
    assert records["balanced"]["error"].endswith(f"; see {log}")
    assert str(log) in done.stdout  # unbroken: sentences are one line where there is no terminal
    assert f"begins balanced ({failed.path.name})" in log.read_text()
    for folder in folders:
        assert sorted(path.name for path in folder.logs.iterdir()) == ["rank0.log", "rank1.log"]
