"""A job that takes more memory than it asked for, under the limits of a cluster: cgroups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm.cluster import PATIENCE_S, Cluster, runs_of
from slurm.conftest import started

pytestmark = [pytest.mark.slurm, pytest.mark.ranks, pytest.mark.timeout(3 * PATIENCE_S)]


@pytest.fixture
def limited_cluster(
    tmp_path_factory: pytest.TempPathFactory, one_installs: Path, slurm_packages: None
) -> Iterator[Cluster]:
    """A Slurm of one node with cgroups, without accounts."""
    if not all(Path("/sys/fs/cgroup", controller).is_dir() for controller in ("memory", "freezer")):
        pytest.skip("no cgroups of version 1 here")
    yield from started(tmp_path_factory.mktemp("cgroups"), one_installs, "--cgroups")


@pytest.mark.usefixtures("fresh_processes")  # those that are forked elsewhere have the memory of elsewhere
def test_a_job_that_is_killed_for_memory_says_so(limited_cluster: Cluster, tmp_path: Path) -> None:
    status, said = limited_cluster.run(
        "preset=balanced", "topology=2gpu_nosplit", "hydra.launcher.mem_gb=1", f"output_dir={tmp_path}", "name=t",
        faults="memory",
    )  # fmt: skip
    assert status == 1
    # A rank is killed, or the job's own process.
    assert "the job's memory was used up; use a higher hydra.launcher.mem_gb" in said or "OUT_OF_MEMORY" in said
    assert "done" not in {folder.record["status"] for folder in runs_of(tmp_path)}
    assert not limited_cluster.queue()
