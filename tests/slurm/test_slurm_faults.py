"""What goes wrong on a cluster: every failure is named, nothing finished is lost, and no wait is endless."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otil_exp.run_folder.folder import RunFolder
from slurm.cluster import PATIENCE_S, SMALL, Cluster, ended, job_of, jobs_of, pictures, runs, until

pytestmark = [pytest.mark.slurm, pytest.mark.ranks, pytest.mark.timeout(3 * PATIENCE_S)]

FIRST, SECOND = "n1", "n2"
"""The nodes: what is preempted stays on the second, away from what is not to be."""


def on(node: str) -> str:
    return f"+hydra.launcher.additional_parameters={{nodelist: {node}}}"


def test_every_failure_is_named_in_one_list_and_the_other_cells_run_on(cluster: Cluster, tmp_path: Path) -> None:
    """An exception on rank 1, SIGKILL of rank 2, scancel of one element, and a cell that goes well; one array."""
    grid = ("preset=balanced,otil,guide,full_sync", "topology=3gpu_nosplit", f"output_dir={tmp_path}", "name=t")
    command = cluster.start(
        *grid, "height=192", "prompts.limit=1", "hydra.launcher.array_parallelism=3",
        faults="balanced:1:raise,otil:2:kill,guide:0:slow",
    )  # fmt: skip
    until(lambda: images(tmp_path, "guide"), "a picture of the cell to cancel")
    cancelled = job_of(tmp_path, runs(tmp_path)["guide 3 nosplit"])
    cluster.ask("scancel", cancelled)
    status, said = ended(command)
    assert status == 1
    assert "3 of 4 cells failed: #0, #1, #2" in said
    _, pictures, failures = said.rpartition("/images")  # after the table and where pictures are
    assert pictures
    assert "rank 1 failed: RuntimeError: a planted fault" in failures
    assert "Traceback (most recent call last)" in failures
    assert "rank 2 failed: killed by SIGKILL" in failures
    assert f"job {cancelled} ended as CANCELLED" in failures
    found = runs(tmp_path)
    statuses = {folder.record["method"]: folder.record["status"] for folder in found.values()}
    assert statuses == {"balanced": "failed", "otil": "failed", "guide": "preempted", "full_sync": "done"}
    assert found["otil 3 nosplit"].record["failed_rank"] == 2
    # Siblings died with them: nothing runs on.
    assert not cluster.queue()


def images(root: Path, method: str) -> list[Path]:
    found = [folder for folder in runs(root).values() if folder.record["method"] == method]
    return [path for folder in found for path in folder.images.glob("*.png")]


@pytest.fixture(scope="module")
def limited(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A cell that gets stuck until its job of three minutes is told of its end; it runs beside the other tests."""
    root = tmp_path_factory.mktemp("limited")
    command = cluster.start(
        "preset=otil", "topology=2gpu_nosplit", "prompts.limit=4", f"output_dir={root}", "name=t", on(FIRST),
        "tracker=wandb_offline", "hydra.launcher.timeout_min=3", "hydra.launcher.signal_delay_s=60",
        faults="otil:0:stall",
    )  # fmt: skip
    yield root, command
    command.kill()


def test_a_preempted_job_whose_launcher_was_killed_is_finished_and_found(
    cluster: Cluster, limited: tuple[Path, subprocess.Popen[str]], tmp_path: Path
) -> None:
    """A job of a higher partition takes the node; the cell goes on afterwards with the next missing picture."""
    cell = ("preset=guide", "topology=2gpu_nosplit", "prompts.limit=4", f"output_dir={tmp_path}", "name=t", on(SECOND))
    launcher = cluster.start(*cell, faults="guide:0:slow")
    until(lambda: images(tmp_path, "guide"), "a picture")
    os.kill(launcher.pid, signal.SIGKILL)
    launcher.wait()
    before = {path.name: path.stat().st_mtime_ns for path in images(tmp_path, "guide")}
    cluster.ask("srun", "--partition=urgent", f"--nodelist={SECOND}", "--exclusive", "true")
    [folder] = runs(tmp_path).values()
    assert folder.record["status"] == "preempted"

    status, said = cluster.run(*cell)
    assert status == 0, said
    assert "in the queue already as job" in said
    assert folder.record["status"] == "done"
    assert len(folder.record["resumed"]) == 1
    assert len(pictures(folder)) == 4
    assert before.items() <= {path.name: path.stat().st_mtime_ns for path in folder.images.iterdir()}.items()


def test_a_job_that_is_told_of_its_end_before_it_listens_comes_back(cluster: Cluster, tmp_path: Path) -> None:
    started = tmp_path / "started"
    command = cluster.start(
        "preset=reference", "prompts.limit=1", f"output_dir={tmp_path}", "name=t", faults=f"late:{started}"
    )
    until(started.exists, "the job to start")
    [job] = jobs_of(tmp_path).values()
    cluster.ask("scancel", "--signal=USR2", "--batch", job)
    status, said = ended(command)
    assert status == 0, said
    assert "Restarts=1" in cluster.ask("scontrol", "show", "job", job)
    [folder] = runs(tmp_path).values()
    assert folder.record["status"] == "done"


def test_a_job_that_may_not_be_requeued_says_so(cluster: Cluster, tmp_path: Path) -> None:
    command = cluster.start(
        "preset=reference", f"output_dir={tmp_path}", "name=t", "+hydra.launcher.additional_parameters.no_requeue=true",
        faults="reference:0:slow",
    )  # fmt: skip
    until(lambda: images(tmp_path, "reference"), "a picture")
    cluster.ask("scancel", "--signal=USR2", "--batch", job_of(tmp_path, *runs(tmp_path).values()))
    status, said = ended(command)
    assert status == 1
    assert "Slurm does not take it back into the queue" in said
    [folder] = runs(tmp_path).values()
    assert folder.record["status"] == "preempted"


def test_a_full_disk_is_named_and_costs_nothing_that_is_finished(cluster: Cluster, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no file system can be mounted here: {error.stderr.decode()}")
    try:
        size = ("height=256", "width=256", "num_inference_steps=1")
        cell = ("preset=reference", *size, "prompts.limit=10", f"output_dir={disk}", "name=t")
        filler = disk / "filler"
        filler.write_bytes(b"0" * 720_000)
        status, said = cluster.run(*cell)
        assert status == 1
        assert "No space left on device" in said
        [folder] = runs(disk).values()
        done = pictures(folder)
        assert 0 < len(done) < 10

        filler.unlink()
        subprocess.run(["mount", "-o", "remount,size=16m", disk], check=True)
        status, said = cluster.run(*cell)
        assert status == 0, said
        assert done.items() <= pictures(folder).items()
        assert len(pictures(folder)) == 10
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_time_limit_in_the_middle_loses_nothing(
    cluster: Cluster, limited: tuple[Path, subprocess.Popen[str]], tmp_path: Path
) -> None:
    """Requeued, same run folder and W&B run, and the pictures of an uninterrupted run."""
    root, command = limited
    local = ("preset=otil", "topology=2gpu_nosplit", *SMALL, "prompts.limit=4", f"output_dir={tmp_path}", "name=t")
    done = subprocess.run(
        [sys.executable, "-m", "otil_exp.app", *local], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    status, said = ended(command)
    assert status == 0, said
    [folder], [whole] = runs(root).values(), runs(tmp_path).values()
    assert folder.record["status"] == "done"
    assert len(folder.record["resumed"]) >= 1
    assert pictures(folder) == pictures(whole)
    assert len(folder.read_steps()) == 4 * 2 * 3
    assert len(wandb_ids(folder)) == len(folder.record["resumed"]) + 1
    assert len(set(wandb_ids(folder))) == 1


def wandb_ids(folder: RunFolder) -> list[str]:
    """Id of the W&B run that each start of a job logged to."""
    names = [path.name for path in (folder.path / "wandb").glob("offline-run-*")]
    return [re.sub(r"offline-run-\d+_\d+-", "", name) for name in names]


def test_a_node_that_is_drained_ends_what_it_runs(cluster: Cluster, tmp_path: Path) -> None:
    """And a job that goes back to the queue meanwhile is none whose node has failed."""
    command = cluster.start(
        "preset=reference", "prompts.limit=4", f"output_dir={tmp_path}", "name=t", faults="reference:0:slow"
    )
    until(lambda: images(tmp_path, "reference"), "a picture")
    job = job_of(tmp_path, *runs(tmp_path).values())
    [node] = cluster.ask("squeue", "--noheader", f"--jobs={job}", "--format=%N").split()
    try:
        cluster.ask("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=planted")
        until(lambda: "drain" in cluster.ask("sinfo", "--noheader", f"--nodes={node}", "--format=%T"), "the drain")
        cluster.ask("scancel", "--signal=USR2", "--batch", job)
        status, said = ended(command)
    finally:
        cluster.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")
    assert status == 0, said
    assert "keeps away from" not in said
    [folder] = runs(tmp_path).values()
    assert (folder.record["status"], len(folder.record["resumed"]), len(pictures(folder))) == ("done", 1, 4)


def test_a_node_that_fails_costs_nothing_but_time(cluster: Cluster, tmp_path: Path) -> None:
    """Slurm puts the job back into the queue; the other node goes on."""
    command = cluster.start(
        "preset=reference", "prompts.limit=4", f"output_dir={tmp_path}", "name=t", faults="reference:0:slow"
    )
    node, status, said = ended_without_its_node(cluster, tmp_path, command)
    assert status == 0, said
    assert "keeps away from" in said
    [folder] = runs(tmp_path).values()
    assert folder.record["status"] == "done"
    assert len(pictures(folder)) == 4
    assert excluded(cluster, job_of(tmp_path, folder)) == node


def test_cells_are_compared_with_a_reference_whose_node_failed(cluster: Cluster, tmp_path: Path) -> None:
    """Slurm ends the job as NODE_FAIL where it may not go back into the queue. That lets the cells go which wait for
    the reference: they wait for its new job, or are scored after it."""
    command = cluster.start(
        "preset=reference,balanced", "topology=2gpu_nosplit", "metrics.psnr=true", f"output_dir={tmp_path}", "name=t",
        "prompts.limit=4", "+hydra.launcher.additional_parameters.no_requeue=true", faults="reference:0:slow",
    )  # fmt: skip
    node, status, said = ended_without_its_node(cluster, tmp_path, command)
    assert status == 0, said
    assert "its cells start again as" in said
    reference, balanced = runs(tmp_path)["reference 1 nosplit"], runs(tmp_path)["balanced 2 nosplit"]
    assert reference.record["status"] == "done"
    assert len(pictures(reference)) == 4
    assert excluded(cluster, job_of(tmp_path, reference)) == node
    assert balanced.metrics["ref/psnr"]["value"] is not None


def ended_without_its_node(cluster: Cluster, root: Path, command: subprocess.Popen[str]) -> tuple[str, int, str]:
    """Let the node fail that makes pictures of the reference: its name, and the command's end."""
    until(lambda: images(root, "reference"), "a picture")
    [reference] = runs(root).values()
    job = job_of(root, reference)
    [node] = cluster.ask("squeue", "--noheader", f"--jobs={job}", "--format=%N").split()
    try:
        cluster.ask("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=planted")
        status, said = ended(command)
    finally:
        cluster.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")  # unless it is back, as it mostly is
    return node, status, said


def excluded(cluster: Cluster, job: str) -> str:
    """Nodes that a job keeps away from."""
    return "".join(re.findall(r"ExcNodeList=(\S+)", cluster.ask("scontrol", "show", "job", job)))
