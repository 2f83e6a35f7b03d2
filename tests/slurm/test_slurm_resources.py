"""What a cell needs of a cluster, worked out by hand; contradictions are refused with what to type."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from composing import Compose
from otil_exp.cells.prepare import prepare
from otil_exp.choices import DeviceKind
from otil_exp.config import DeviceConfig
from otil_exp.run_folder.cell import Cell
from otil_exp.slurm import resources
from otil_exp.slurm.resources import Resources, device_for, resources_of
from otil_exp.slurm.settings import SlurmSettings


def cell_on(composed: Compose, kind: DeviceKind, *overrides: str) -> Cell:
    """A cell whose device is settled as on a cluster."""
    cell = prepare(composed("device=cpu", *overrides))
    device = DeviceConfig(kind=kind, threads=cell.effective.device.threads)
    return replace(cell, effective=replace(cell.effective, device=device))


@pytest.mark.parametrize(
    ("topology", "kind", "settings", "expected"),
    [
        ("4gpu_split", DeviceKind.cuda, {}, (1, 4, 4)),
        ("8gpu_split", DeviceKind.cuda, {"ranks_per_node": 4}, (2, 4, 4)),
        ("6gpu_split", DeviceKind.cuda, {"ranks_per_node": 3}, (2, 3, 3)),
        ("4gpu_split", DeviceKind.cuda, {"nodes": 2}, (2, 2, 2)),
        ("4gpu_split", DeviceKind.shared_gpu, {}, (1, 4, 1)),
        ("4gpu_split", DeviceKind.cpu, {}, (1, 4, 0)),
        ("1gpu", DeviceKind.cuda, {}, (1, 1, 1)),
        ("4gpu_split", DeviceKind.cuda, {"tasks_per_node": 4, "gpus_per_node": 4, "nodes": 1}, (1, 4, 4)),
    ],
)
def test_nodes_ranks_and_gpus_follow_from_the_topology(
    composed: Compose, topology: str, kind: DeviceKind, settings: dict[str, int], expected: tuple[int, int, int]
) -> None:
    cell = cell_on(composed, kind, "preset=balanced", f"topology={topology}", "height=384")
    found = resources_of(cell, SlurmSettings(**settings))
    assert (found.nodes, found.tasks_per_node, found.gpus_per_node) == expected
    assert found.cpus_per_task is None


def test_a_reference_takes_one_gpu_in_a_grid_of_four(composed: Compose) -> None:
    cell = cell_on(composed, DeviceKind.cuda, "preset=reference", "topology=4gpu_split")
    expected = Resources(nodes=1, tasks_per_node=1, gpus_per_node=1, cpus_per_task=8)
    assert resources_of(cell, SlurmSettings(cpus_per_task=8)) == expected


def test_cpus_of_a_rank_follow_from_its_threads(composed: Compose) -> None:
    cell = cell_on(composed, DeviceKind.cpu, "topology=4gpu_split", "device.threads=3")
    assert resources_of(cell, SlurmSettings()).cpus_per_task == 3
    with pytest.raises(ValueError, match="hydra.launcher.cpus_per_task=3"):
        resources_of(cell, SlurmSettings(cpus_per_task=2))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"tasks_per_node": 2}, r"hydra.launcher.tasks_per_node=2 contradicts the 4 ranks .* make it 4"),
        ({"gpus_per_node": 8}, r"hydra.launcher.gpus_per_node=8 contradicts the 4 ranks .* make it 4"),
        ({"nodes": 3}, r"4 ranks do not lie evenly on 3 nodes: leave hydra.launcher.nodes out"),
        ({"ranks_per_node": 3}, None),  # two nodes of two
    ],
)
def test_a_contradiction_is_refused(composed: Compose, settings: dict[str, int], sentence: str | None) -> None:
    cell = cell_on(composed, DeviceKind.cuda, "topology=4gpu_split")
    if sentence is None:
        assert resources_of(cell, SlurmSettings(**settings)).nodes == 2
        return
    with pytest.raises(ValueError, match=sentence):
        resources_of(cell, SlurmSettings(**settings))


def test_ranks_that_do_not_lie_evenly_on_nodes_are_told_a_number_that_does(composed: Compose) -> None:
    """8 ranks, 3 a node: three nodes, and 8 is no multiple of 3."""
    cell = cell_on(composed, DeviceKind.cuda, "topology=8gpu_split", "preset=balanced", "height=256")
    with pytest.raises(ValueError, match="ranks_per_node that divides 8, such as 2"):
        resources_of(cell, SlurmSettings(ranks_per_node=3))


def test_ranks_that_share_a_gpu_share_a_node(composed: Compose) -> None:
    cell = cell_on(composed, DeviceKind.shared_gpu, "topology=4gpu_split")
    with pytest.raises(ValueError, match="must fit on one node"):
        resources_of(cell, SlurmSettings(ranks_per_node=2))


@pytest.fixture
def sinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster whose default partition has GPUs, and another that has none."""
    fake = tmp_path / "sinfo"
    fake.write_text("#!/bin/sh\nprintf 'gpu*|gpu:l40s:4(S:0-1)\\ngpu*|(null)\\ncpu|(null)\\n'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    resources._has_gpus.cache_clear()


@pytest.mark.usefixtures("sinfo")
def test_the_device_is_settled_by_what_the_partition_has() -> None:
    assert device_for("auto", None) == "cuda"
    assert device_for("auto", "gpu") == "cuda"
    assert device_for("auto", "cpu") == "cpu"
    assert device_for("cuda", "gpu") == "cuda"
    assert device_for("cpu", None) == "cpu"
    with pytest.raises(ValueError, match="device=cuda: partition cpu has no GPUs"):
        device_for("cuda", "cpu")
    with pytest.raises(ValueError, match="this cluster has cpu, gpu"):
        device_for("auto", "l40")


@pytest.mark.usefixtures("sinfo")
def test_of_several_partitions_one_with_gpus_is_enough_and_all_must_exist() -> None:
    assert device_for("auto", "cpu,gpu") == "cuda"
    assert device_for("cuda", "gpu,cpu") == "cuda"
    with pytest.raises(ValueError, match="partition=gpu,l40: this cluster has cpu, gpu"):
        device_for("auto", "gpu,l40")


def test_without_slurm_it_says_where_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resources._has_gpus.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="launchers/one_node_slurm"):
        device_for("auto", None)


@pytest.mark.usefixtures("sinfo")
def test_a_slurm_that_does_not_answer_is_said_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sinfo").write_text("#!/bin/sh\nexec sleep 20\n")
    monkeypatch.setattr(resources, "TIMEOUT_S", 0.2)
    with pytest.raises(ValueError, match="sinfo did not answer in 0.2 s"):
        device_for("auto", None)


@pytest.mark.parametrize(
    ("gres", "holds"),
    [
        ("gpu", True),
        ("gpu:8", True),
        ("gpu:l40s:4(S:0-1)", True),
        ("gpu:a100:10,mps:400", True),
        ("nvme:1,gpu:1", True),
        ("gpu:0", False),
        ("gpu:l40s:0(S:0-1)", False),
        ("(null)", False),
        ("gpu_licence:4", False),
    ],
)
def test_nodes_have_gpus_where_their_number_is_not_zero(gres: str, holds: bool) -> None:
    assert resources.holds_gpus(gres) == holds
