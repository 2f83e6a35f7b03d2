"""Ranks that others start: torchrun for real, Slurm's tasks by their variables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from launch.test_launch_environment import BATCH_SCRIPT
from otil_exp.launch.environment import job_port

pytestmark = [pytest.mark.ranks, pytest.mark.usefixtures("fresh_processes")]

# One write a line: torchrun runs python -u, where the words of a print are writes of their own, and two ranks' mix.
SCRIPT = """
import os, sys
from launch.duties import gathered_environment
from otil_exp.launch import launch
for world_size in (4, 2, 2):
    try:
        result = launch(gathered_environment, world_size)
        places = result and [(env["RANK"], env["LOCAL_RANK"]) for env in result]
        sys.stdout.write(f'{os.environ["RANK"]} returns {places}\\n')
        sys.stdout.write(f'{os.environ["MASTER_ADDR"]} {os.environ["MASTER_PORT"]}\\n')
    except (RuntimeError, ValueError) as error:
        sys.stdout.write(f'{error}\\n')
"""
RETURNED = ("0 returns [('0', '0'), ('1', '1')]", "1 returns None")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    return file


def environment(variables: dict[str, str]) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables


def test_under_torchrun_the_function_runs_here_once_and_with_the_right_number_of_ranks(script: Path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(script)]
    done = subprocess.run(command, env=environment({}), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert all(words in done.stdout for words in RETURNED), done
    refusal = "torchrun started 2 ranks, but the topology has 4: use `torchrun --nproc_per_node=4`, or a topology=..."
    assert done.stdout.count(refusal) == 2
    assert done.stdout.count("this rank of torchrun has hosted a run already") == 2


def test_tasks_of_a_slurm_step_join_and_agree(script: Path):
    job = BATCH_SCRIPT | {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}
    tasks = [
        subprocess.Popen(
            [sys.executable, str(script)],
            env=environment(job | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [task.communicate(timeout=60)[0] for task in tasks]
    finally:
        for task in tasks:
            task.kill()
    for output, words in zip(outputs, RETURNED, strict=True):
        assert words in output
        assert f"localhost {job_port(os.getpid(), 0)}" in output
