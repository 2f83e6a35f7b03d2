"""How srun says that tasks ended, as Slurm 22.05 printed it."""

from __future__ import annotations

from pathlib import Path

import pytest

from otil_exp.launch.step import SlurmStep, _failures

KILLED = """srun: error: n1: task 2: Killed
srun: launch/slurm: _step_signal: Terminating StepId=4.0
srun: error: n1: tasks 0-1: Killed
srun: error: n2: task 3: Terminated
"""

EXITED = """srun: error: gpu07: task 1: Exited with exit code 1
slurmstepd: error: *** STEP 12.0 ON gpu07 CANCELLED AT 2026-11-29T17:51:35 ***
srun: error: gpu07: tasks 0,2-3: Segmentation fault (core dumped)
"""


@pytest.mark.parametrize(
    ("said", "codes"),
    [
        (KILLED, [(2, -9), (0, -9), (1, -9), (3, -15)]),
        (EXITED, [(1, 1), (0, -11), (2, -11), (3, -11)]),
        ("srun: error: n1: task 2: Out Of Memory\nsrun: error: n1: task 0: Killed\n", [(2, -9), (0, -9)]),
        ("srun: error: Unable to create step for job 7: More processors requested than permitted\n", []),
    ],
)
def test_tasks_are_found_in_the_order_in_which_they_ended(
    said: str, codes: list[tuple[int, int]], tmp_path: Path
) -> None:
    step = SlurmStep(nodes=2, tasks_per_node=2, cpus_per_task=None, folder=tmp_path)
    assert [(rank, failure.exitcode) for rank, failure in _failures(said, step)] == codes
    assert [failure.local_rank for _, failure in _failures(said, step)] == [rank % 2 for rank, _ in codes]
