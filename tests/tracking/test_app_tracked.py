"""The app with a tracker, on two real ranks."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from wandb_files import read, runs_of

from test_app import OTIL, SMALL, environment, folders, otil_exp, wait_for_pictures

PLANTED = {
    "WANDB_API_KEY": "fedcba9876543210fedcba9876543210fedcba98",
    "HF_TOKEN": "hf_plantedplantedplantedplanted",
    "MY_SECRET": "planted-at-noon",
}


@pytest.mark.ranks
def test_two_ranks_are_one_run_with_the_metrics_of_metrics_json_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in PLANTED.items():
        monkeypatch.setenv(name, value)
    # A prompt with a token in it stands for whatever a user may have pasted.
    prompt = f"prompts.texts=['a red circle {PLANTED['HF_TOKEN']}']"
    small = (*SMALL, "num_inference_steps=2", f"output_dir={tmp_path}", "tracker=wandb_offline")
    done = otil_exp("preset=balanced", "topology=2gpu_nosplit", prompt, *small)
    assert done.returncode == 0, done.stderr
    folder = folders(tmp_path)["balanced"]
    [path] = runs_of(folder)
    logged = read(path)

    assert {key: logged.summary.get(key) for key in folder.metrics} == {
        key: pytest.approx(entry["value"]) for key, entry in folder.metrics.items()
    }
    own = [row for row in folder.read_steps() if row.rank == 0]
    steps = [entry for entry in logged.history if "step/ms" in entry]
    assert [(e["step/prompt"], e["step/index"], e["step/kind"], e["step/collectives"]) for e in steps] == [
        (row.prompt, row.step, row.kind, row.collectives) for row in own
    ]
    assert [entry["step/ms"] for entry in steps] == pytest.approx([row.ms for row in own], abs=1e-3)
    assert "picture/00" in logged.names
    assert logged.exit_code == 0

    leaks = [
        (file.name, name)
        for file in (folder.path / "wandb").rglob("*")
        if file.is_file()
        for name, value in PLANTED.items()
        if value.encode() in file.read_bytes()
    ]
    assert not leaks
    whole = b"".join(file.read_bytes() for file in folder.path.rglob("*") if file.is_file()) + done.stdout.encode()
    assert not [name for name in ("WANDB_API_KEY", "MY_SECRET") if PLANTED[name].encode() in whole]


@pytest.mark.ranks
def test_a_rank_that_is_killed_fails_the_run_at_wandb_too(tmp_path: Path) -> None:
    """Rank 0 is ended because of rank 1: by a lost connection, or by the launcher's SIGTERM."""
    command = (*OTIL, "preset=balanced", "topology=2gpu_nosplit", *SMALL, "tracker=wandb_offline")
    job = subprocess.Popen([*command, f"output_dir={tmp_path}"], env=environment(), stderr=subprocess.DEVNULL)
    try:
        os.kill(wait_for_pictures(tmp_path, job, count=1), signal.SIGKILL)
        job.wait(timeout=60)
    finally:
        job.kill()
    folder = folders(tmp_path)["balanced"]
    assert (folder.record["status"], folder.record["failed_rank"]) == ("failed", 1)
    [path] = runs_of(folder)
    logged = read(path)
    assert logged.exit_code == 1
    assert logged.summary["failure/error"]
