"""Two commands with one grid at once: every cell is submitted once, runs once, and both commands end well."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slurm.cluster import Cluster, ended, jobs_of, runs_of

CELLS = int(os.environ.get("RACE_CELLS", 12))
"""Of the grid; RACE_CELLS=300 makes a grid of ten jobs of thirty, which takes two cores a quarter of an hour."""

PACK = min(30, CELLS // 4)
PATIENCE_S = 1500.0
"""Bound on the race: many times what it takes on two quiet cores."""

pytestmark = [pytest.mark.slurm, pytest.mark.ranks, pytest.mark.timeout(PATIENCE_S + 300)]

TINY = ("preset=reference", "topology=1gpu", "height=64", "width=64", "num_inference_steps=1", "prompts.limit=1")


def test_two_commands_race_over_a_large_grid_and_no_cell_is_run_twice(cluster: Cluster, tmp_path: Path) -> None:
    grid = (*TINY, f"seed=range(0,{CELLS})", f"output_dir={tmp_path}", "name=t", f"hydra.launcher.pack={PACK}")
    racing = [cluster.start(*grid) for _ in range(2)]
    with ThreadPoolExecutor() as readers:  # both at once: a pipe that nobody reads fills up
        outcomes = list(readers.map(lambda command: ended(command, PATIENCE_S), racing))
    assert [status for status, _ in outcomes] == [0, 0], outcomes
    submitted = [re.findall(r"^#(\d+) .*: submitted as job (\S+)$", said, re.M) for _, said in outcomes]
    taken_up = [re.findall(r"^#(\d+) .*: (?:in the queue already|done already)", said, re.M) for _, said in outcomes]
    assert sorted(int(cell) for own in submitted for cell, _ in own) == list(range(CELLS))
    for own, found in zip(submitted, taken_up, strict=True):
        assert len(own) + len(found) == CELLS
    jobs = {job for own in submitted for _, job in own}
    assert len(jobs) == -(-CELLS // PACK)
    assert len(jobs_of(tmp_path)) == CELLS
    assert set(jobs_of(tmp_path).values()) == jobs
    folders = runs_of(tmp_path)
    assert len(folders) == CELLS
    for folder in folders:
        assert folder.record["status"] == "done"
        assert folder.record["resumed"] == []
        assert [path.name for path in folder.images.iterdir()] == ["00.png"]
    assert not cluster.queue()
