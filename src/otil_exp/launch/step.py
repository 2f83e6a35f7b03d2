"""Start the ranks as a step of the Slurm allocation that this process is in: one srun, one task a rank."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from otil_exp.launch.environment import free_port
from otil_exp.launch.failure import RankFailure, root_cause
from otil_exp.launch.handover import hand_over, result_of
from otil_exp.launch.rank import error_file

T = TypeVar("T")

END_S = 15.0
"""Seconds that a step gets to end after SIGTERM, before srun itself is killed."""


@dataclass(frozen=True, kw_only=True)
class SlurmStep:
    """How the ranks lie in the allocation."""

    nodes: int
    tasks_per_node: int
    cpus_per_task: int | None
    """CPUs of a rank; None leaves it to Slurm."""

    folder: Path
    """Where the ranks find their call: a folder that all nodes see."""


def start_step(
    function: Callable[..., T],
    world_size: int,
    *args: object,
    log_dir: Path | None,
    threads: int | None,
    step: SlurmStep,
) -> T:
    """Call `function(*args)` on `world_size` tasks of this allocation; return what rank 0 returned.

    What the ranks print before they have logs of their own, and rank 0 later too, goes to step.folder/step.log. srun
    ends the other ranks as soon as one has failed.
    Raises RankFailure; what interrupts the wait is raised once the ranks have ended.
    """
    assert step.nodes * step.tasks_per_node == world_size
    step.folder.mkdir(parents=True, exist_ok=True)
    for old in (*step.folder.glob("error*.json*"), *step.folder.glob("result.pickle")):
        old.unlink()
    command = hand_over(step.folder, function, args, parent=None, log_dir=log_dir, threads=threads)
    complaints = step.folder / "srun.log"
    with complaints.open("w", encoding="utf-8") as file:
        srun = subprocess.Popen(
            [*_srun(step, world_size), *command], stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=_environment()
        )
        try:
            status = srun.wait()
        except BaseException:
            _end(srun)
            raise
    if status:
        said = complaints.read_text(encoding="utf-8")
        failures = dict(_failures(said, step))
        if not failures:  # srun itself failed: no resources, no such node
            raise RankFailure(0, 0, status, f"did not start: {said.strip() or f'srun exited with code {status}'}")
        failure = root_cause(ChildFailedError("srun", failures), log_dir)
        if failure.signal == "SIGKILL" and "Out Of Memory" in said:  # Slurm knows what we could only guess
            failure.message = "killed by SIGKILL: the job's memory was used up; use a higher hydra.launcher.mem_gb"
        raise failure from None
    result: T = result_of(step.folder)
    return result


def _srun(step: SlurmStep, world_size: int) -> list[str]:
    command = [
        "srun",
        f"--nodes={step.nodes}",
        f"--ntasks={world_size}",
        f"--ntasks-per-node={step.tasks_per_node}",
        "--kill-on-bad-exit=1",
        "--open-mode=append",
        f"--output={step.folder / 'step.log'}",
    ]
    # Since 22.05 srun does not take it from sbatch, and would bind a rank to one CPU.
    return command + ([f"--cpus-per-task={step.cpus_per_task}"] if step.cpus_per_task else [])


def _environment() -> dict[str, str]:
    """Of the step: where its ranks meet is for us to say, whatever the shell had that the job was submitted from."""
    kept = {name: value for name, value in os.environ.items() if name not in ("MASTER_ADDR", "MASTER_PORT")}
    # The batch script's host is the first one of the allocation, and so rank 0's.
    return kept | {"MASTER_PORT": free_port(int(os.environ["SLURM_JOB_ID"]))}


def _end(srun: subprocess.Popen[bytes]) -> None:
    """Let srun pass SIGTERM on to the ranks, and wait for them."""
    srun.send_signal(signal.SIGTERM)
    try:
        srun.wait(END_S)
    except subprocess.TimeoutExpired:
        srun.kill()
        srun.wait()


_ENDED = re.compile(
    r"error: \S+: tasks? (?P<tasks>[\d,-]+): "
    r"(?:Exited with exit code (?P<code>\d+)|(?P<signal>[A-Z][\w ]*?)(?: \(core dumped\))?)$",
    re.MULTILINE,
)
"""How srun reports the end of tasks, first the one that ended first."""


def _failures(said: str, step: SlurmStep) -> Iterator[tuple[int, ProcessFailure]]:
    """Every task that did not end well, with the exception it left behind."""
    for match in _ENDED.finditer(said):
        code = int(match["code"]) if match["code"] else -_signal_number(match["signal"])
        for rank in _numbers(match["tasks"]):
            file = str(error_file(step.folder, rank))
            yield rank, ProcessFailure(local_rank=rank % step.tasks_per_node, pid=0, exitcode=code, error_file=file)


def _signal_number(words: str) -> int:
    """Number of the signal that strsignal(3) describes: "Killed" -> 9; unknown words count as SIGKILL."""
    named = {signal.strsignal(number): int(number) for number in signal.valid_signals()}
    return named.get(words, int(signal.SIGKILL))


def _numbers(ranges: str) -> Iterator[int]:
    """ "0-2,5" -> 0, 1, 2, 5."""
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
