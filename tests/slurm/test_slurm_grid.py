"""A grid on a real Slurm: submitted, run, recorded, and never run twice."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from otil_exp.slurm import queue
from slurm.cluster import PATIENCE_S, ROOT, SIDE, Cluster, ended, interrupted, pictures, runs, until

pytestmark = [pytest.mark.slurm, pytest.mark.ranks, pytest.mark.timeout(3 * PATIENCE_S)]

SWEEP = ("preset=reference,otil,balanced", "topology=2gpu_split,4gpu_split", "name=t")
STEPS = (
    *("device=cpu", "num_inference_steps=3", "warmup_steps=0", "prompts.limit=1", "metrics=pairwise"),
    *SIDE,
)
"""As those of the finished grid."""


@pytest.fixture(scope="module")
def sweep(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A grid on Slurm, cells of one topology in one job; its output folder, and what the command said.

    What the shell says of a master is not for its jobs, of which two run at once.
    """
    root = tmp_path_factory.mktemp("sweep")
    with pytest.MonkeyPatch.context() as shell:
        shell.setenv("MASTER_ADDR", "login.invalid")
        shell.setenv("MASTER_PORT", "29500")
        words = (*SWEEP, *STEPS, f"output_dir={root}", "tracker=wandb_offline", "hydra.launcher.pack=4")
        status, said = cluster.run(*words)
    assert status == 0, said
    return root, said


def test_the_sweep_leaves_a_run_folder_and_a_wandb_run_a_cell(sweep: tuple[Path, str]) -> None:
    root, said = sweep
    assert "6 cells, 4 distinct" in said
    found = runs(root)
    assert len(found) == 4
    assert len(set(re.findall(r"submitted as job (\S+)", said))) == 3  # otil and balanced on four ranks share one
    for folder in found.values():
        assert folder.record["status"] == "done"
        assert [path.name for path in folder.images.iterdir()] == ["00.png"]
        assert len(list((folder.path / "wandb").glob("offline-run-*"))) == 1
        ranks = folder.record["topology"]["world_size"]
        assert sorted(path.name for path in folder.logs.iterdir()) == [f"rank{rank}.log" for rank in range(ranks)]
    # The reference was there when the others were scored.
    assert found["otil 4 split"].metrics["ref/psnr"]["n"] == 1


def test_its_pictures_are_those_of_the_local_launcher(sweep: tuple[Path, str], finished_grid: Path) -> None:
    """Which has made those of more prompts."""
    here, there = runs(finished_grid.parent), runs(sweep[0])
    assert here.keys() == there.keys()
    assert {key: pictures(here[key])["00.png"] for key in here} == {
        key: pictures(there[key])["00.png"] for key in there
    }


def test_a_rerun_of_a_finished_grid_submits_nothing(cluster: Cluster, sweep: tuple[Path, str]) -> None:
    before = known_jobs(cluster)
    status, said = cluster.run(*SWEEP, *STEPS, f"output_dir={sweep[0]}", "tracker=wandb_offline")
    assert status == 0, said
    assert said.count("done already, skipped") == 4
    assert known_jobs(cluster) <= before  # fewer, where Slurm has forgotten old ones meanwhile


def known_jobs(cluster: Cluster) -> set[str]:
    """Numbers of the jobs that Slurm remembers: those not yet ended, and those that ended in the last five minutes."""
    return set(re.findall(r"JobId=(\d+)", cluster.ask("scontrol", "show", "jobs", "--oneliner")))


def test_two_nodes_of_two_ranks_make_the_pictures_of_one_node_of_four(
    cluster: Cluster, sweep: tuple[Path, str], tmp_path: Path
) -> None:
    two_nodes = ("preset=balanced", "topology=4gpu_split", "hydra.launcher.ranks_per_node=2", "name=t")
    status, said = cluster.run(*STEPS, *two_nodes, f"output_dir={tmp_path}", "metrics=none")
    assert status == 0, said
    [folder] = runs(tmp_path).values()
    assert "NumNodes=2" in cluster.ask("scontrol", "show", "job", "--oneliner", last_job(said))
    assert pictures(folder) == pictures(runs(sweep[0])["balanced 4 split"])


def last_job(said: str) -> str:
    return re.findall(r"submitted as job (\S+)", said)[-1]


def test_real_accounts_know_how_a_job_ended(
    cluster: Cluster, sweep: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """sacct over slurmdbd, which is asked once squeue has forgotten a job."""
    job = last_job(sweep[1])
    monkeypatch.setenv("SLURM_CONF", cluster.conf)
    assert queue.standings([job])[job].state == "COMPLETED"
    until(lambda: job in (found := queue._sacct([job])) and found[job].state == "COMPLETED", "sacct")
    assert queue._sacct([job])[job].nodes in ("n1", "n2")
    assert queue.standings(["999999"])["999999"].state == queue.GONE


HELD = ("+hydra.launcher.additional_parameters={hold: true}", "preset=otil", "topology=2gpu_nosplit", "name=t")

CALLBACK = "+hydra.callbacks.log._target_=hydra.experimental.callbacks.LogJobReturnCallback"


def test_without_waiting_the_command_returns_and_typed_again_takes_the_jobs_up(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Then Ctrl-C: the jobs stay in the queue, or are cancelled if that was asked for."""
    held = (*HELD, f"output_dir={tmp_path}")
    status, said = cluster.run(*held, "hydra.launcher.wait=false", CALLBACK)
    assert status == 0, said
    assert "hydra.callbacks: those of a grid are called here; those of a job are not called on Slurm" in said
    job = last_job(said)
    assert is_pending(cluster, job)

    status, said = interrupted_while_waiting(cluster, job, *held)
    assert status == 1
    assert "the jobs go on" in said
    assert is_pending(cluster, job)

    status, said = interrupted_while_waiting(cluster, job, *held, "hydra.launcher.cancel_on_interrupt=true")
    assert status == 1
    assert f"cancelled {job}" in said
    assert not is_pending(cluster, job)


def is_pending(cluster: Cluster, job: str) -> bool:
    return f"{job} PENDING t" in cluster.queue()  # named after the grid


def interrupted_while_waiting(cluster: Cluster, job: str, *arguments: str) -> tuple[int, str]:
    """Ctrl-C after the command has found the job in the queue."""
    waiting = cluster.start(*arguments)
    assert waiting.stdout
    lines = [waiting.stdout.readline() for _ in range(2)]
    assert f"in the queue already as job {job}" in lines[1], lines
    time.sleep(1)  # it waits now
    return interrupted(waiting)


def test_a_grid_with_a_mistake_submits_nothing(cluster: Cluster, tmp_path: Path) -> None:
    status, said = cluster.run(
        "preset=otil", "topology=4gpu_split", "height=256,720", f"output_dir={tmp_path}", "name=t"
    )
    assert status == 1
    assert "nothing was started" in said
    assert "use height=704 or height=768" in said
    assert "Traceback" not in said
    assert list((tmp_path / "t" / ".submitit").iterdir()) == []


def test_what_slurm_refuses_is_a_failure_of_those_cells(cluster: Cluster, tmp_path: Path) -> None:
    """A feature that no node has."""
    status, said = cluster.run(
        "preset=otil", "topology=2gpu_nosplit", "hydra.launcher.constraint=h100", f"output_dir={tmp_path}", "name=t"
    )
    assert status == 1
    assert "Slurm did not take the job" in said
    assert "1 of 1 cells failed: #0" in said


def test_the_plain_batch_script_runs_one_cell(cluster: Cluster, tmp_path: Path) -> None:
    """The otil-exp that it finds is the module, which has its libraries loaded here."""
    command = tmp_path / "bin" / "otil-exp"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m otil_exp.app "$@"\n')
    command.chmod(0o755)
    script = [str(ROOT / "launchers" / "one_cell.sbatch"), *STEPS, "metrics=none", f"output_dir={tmp_path}", "name=t"]
    log = tmp_path / "job.out"
    options = ["--parsable", "--ntasks=2", "--nodes=1", f"--output={log}"]
    environment = cluster.environment()
    environment["PATH"] = f"{command.parent}:{environment['PATH']}"
    submitted = subprocess.run(
        ["sbatch", *options, *script, "preset=balanced", "topology=2gpu_nosplit"],
        env=environment,
        timeout=60,
        capture_output=True,
        text=True,
        check=True,
    )
    job = submitted.stdout.strip()  # sbatch --wait looks after 2 s, 8 s and 32 s
    until(lambda: not any(line.startswith(f"{job} ") for line in cluster.queue()), "the job")
    assert [folder.record["status"] for folder in runs(tmp_path).values()] == ["done"], log.read_text()


def test_jobs_have_the_environment_of_hydra_job_env_set(cluster: Cluster, tmp_path: Path) -> None:
    status, said = cluster.run(
        "preset=reference", "prompts.limit=1", f"output_dir={tmp_path}", "name=t",
        "+hydra.job.env_set.OTIL_EXP_FAULTS='reference:0:raise'", faults="none",
    )  # fmt: skip
    assert status == 1
    assert "rank 0 failed: RuntimeError: a planted fault" in said


def test_status_cancel_and_a_dry_run_know_the_queue(cluster: Cluster, tmp_path: Path) -> None:
    dry, said = cluster.run(*HELD, f"output_dir={tmp_path}", "hydra.launcher.dry_run=true")
    assert dry == 0, said
    assert "1 cells of kinds that have not been run" in said
    assert "#SBATCH --hold" in said
    status, said = cluster.run(*HELD, f"output_dir={tmp_path}", "hydra.launcher.wait=false")
    assert status == 0, said
    [job] = re.findall(r"submitted as job (\S+)", said)  # the dry run has submitted none
    assert "JobHeld" in typed(cluster, "status_main", tmp_path / "t")
    assert f"cancelled job {job} (PENDING)" in typed(cluster, "cancel_main", tmp_path / "t")
    assert not is_pending(cluster, job)
    assert "1 cells: 1 ended" in typed(cluster, "status_main", tmp_path / "t")


def typed(cluster: Cluster, entry_point: str, grid: Path) -> str:
    """What otil-exp-status or otil-exp-cancel says."""
    script = f"from otil_exp.status import {entry_point}; {entry_point}()"
    return cluster.ask(sys.executable, "-c", script, str(grid))


def test_jobs_of_a_snapshot_import_what_was_submitted(cluster: Cluster, tmp_path: Path) -> None:
    """The checkout is broken while the job waits in the queue."""
    checkout = tmp_path / "src"
    shutil.copytree(ROOT / "src", checkout, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "conf").symlink_to(ROOT / "conf")
    snapshot = (*HELD, "prompts.limit=1", f"output_dir={tmp_path}", "hydra.launcher.snapshot=true")
    status, said = cluster.run(*snapshot, "hydra.launcher.wait=false", path=checkout)
    assert status == 0, said
    for module in ("job.py", "slurm/allocation.py", "run/generation.py"):
        (checkout / "otil_exp" / module).write_text("raise RuntimeError('edited meanwhile')\n")
    job = last_job(said)
    cluster.ask("scontrol", "release", job)
    until(lambda: not cluster.queue(), "the job")
    [folder] = runs(tmp_path).values()
    assert folder.record["status"] == "done", folder.record


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_launcher_that_is_killed_or_loses_its_terminal_says_what_goes_on(
    cluster: Cluster, tmp_path: Path, number: signal.Signals
) -> None:
    before = signal.signal(number, signal.SIG_DFL)  # nohup's children ignore it
    waiting = cluster.start(*HELD, f"output_dir={tmp_path}", "hydra.launcher.cancel_on_interrupt=true")
    signal.signal(number, before)
    assert waiting.stdout
    submitted = [line for line in (waiting.stdout.readline() for _ in range(2)) if "submitted as job" in line]
    time.sleep(1)  # it waits now
    waiting.send_signal(number)
    status, said = ended(waiting)
    assert status == 1
    job = last_job(submitted[0])
    assert f"interrupted, and cancelled {job}" in said
    assert not is_pending(cluster, job)
