"""Who started us: the variables of torchrun, Slurm and submitit, told apart without starting anything."""

from __future__ import annotations

import socket

import pytest

from otil_exp.launch.environment import free_port, job_port, place_of
from otil_exp.launch.threads import threads_per_rank

# What Slurm sets in the script of `sbatch --ntasks=4`, which is no rank though it has a SLURM_PROCID.
BATCH_SCRIPT = {
    "SLURM_JOB_ID": "71",
    "SLURM_JOB_NODELIST": "gpu[07-08]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_TASKS_PER_NODE": "2(x2)",
}

# What srun adds for the last of its tasks.
TASK = BATCH_SCRIPT | {
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_LAUNCH_NODE_IPADDR": "192.0.2.7",
}

INTERACTIVE_STEP = TASK | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_STEP_NUM_TASKS": "1"}


@pytest.mark.parametrize("environment", [{}, BATCH_SCRIPT, INTERACTIVE_STEP, {"RANK": "0", "WORLD_SIZE": "2"}])
def test_shells_batch_scripts_and_machine_ranks_start_their_ranks_themselves(environment: dict[str, str]):
    assert place_of(environment) is None


def test_a_task_of_a_slurm_step_is_a_rank(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, port: [host])
    place = place_of(TASK)
    assert place is not None
    assert place.variables() == {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "gpu07",
        "MASTER_PORT": str(10007 + 71 * 101),
    }


def test_the_first_node_is_reached_by_address_when_its_name_means_nothing(monkeypatch: pytest.MonkeyPatch):
    def unknown(host: str, port: None) -> None:
        raise socket.gaierror(host)

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    place = place_of(TASK)
    assert place is not None
    assert place.master_addr == "192.0.2.7"


def test_a_step_on_one_node_needs_no_name():
    place = place_of(TASK | {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_TASKS_PER_NODE": "4", "SLURM_NODEID": "0"})
    assert place is not None
    assert (place.master_addr, place.local_world_size) == ("localhost", 4)


def test_master_addr_and_port_that_are_set_are_kept():
    place = place_of(TASK | {"MASTER_ADDR": "head", "MASTER_PORT": "1234"})
    assert place is not None
    assert (place.master_addr, place.master_port) == ("head", "1234")


def test_neighbouring_jobs_and_steps_have_different_ports():
    ports = {job_port(job, step) for job in range(4_000_000, 4_000_225) for step in range(100)}
    assert len(ports) == 225 * 100
    assert all(10007 <= int(port) < 32768 for port in ports)


def test_a_task_of_submitits_local_executor_is_a_rank():
    environment = {"JOB_ID": "812", "NTASKS": "2", "GLOBALID": "1", "LOCALID": "1", "NODEID": "0"}
    place = place_of({f"SUBMITIT_LOCAL_{name}": value for name, value in environment.items()})
    assert place is not None
    assert (place.rank, place.world_size, place.local_rank, place.master_addr) == (1, 2, 1, "localhost")


def test_a_wrong_number_of_tasks_is_refused_with_what_to_type():
    place = place_of(TASK)
    assert place is not None
    with pytest.raises(ValueError, match=r"srun started 4 ranks, but the topology has 8: use `srun --ntasks=8`, or a"):
        place.check(8)
    in_script = place_of(TASK | {"ENVIRONMENT": "BATCH"})
    assert in_script is not None
    with pytest.raises(ValueError, match=r"use `sbatch --ntasks=8`"):
        in_script.check(8)


@pytest.mark.parametrize(("asked", "set_to", "threads"), [(None, None, 1), (3, "2", 3), (None, "2", 2), (None, "", 1)])
def test_threads_are_asked_for_or_inherited_or_shared_out(
    monkeypatch: pytest.MonkeyPatch, asked: int | None, set_to: str | None, threads: int
):
    if set_to is None:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", set_to)
    assert threads_per_rank(asked, local_ranks=1000) == threads


def test_a_port_that_somebody_listens_at_is_passed_over() -> None:
    """Job 7: 10007 + 707 = 10714, then 10715."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 10714))
        taken.listen()
        assert free_port(7) == "10715"
    assert free_port(7) == "10714"


def test_what_an_export_left_behind_is_told_apart_from_a_starter():
    """One rank that torchrun did not start: no torchrun to type, which would be refused by the next sentence."""
    left = place_of({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"})
    assert left is not None
    with pytest.raises(ValueError, match=r"use `env -u RANK -u WORLD_SIZE -u LOCAL_RANK otil-exp \.\.\.`, or a"):
        left.check(2)
    two = place_of({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"})
    assert two is not None
    with pytest.raises(ValueError, match=r"use `torchrun --nproc_per_node=4`"):
        two.check(4)
