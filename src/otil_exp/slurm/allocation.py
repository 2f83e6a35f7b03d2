"""What a job does in its allocation: it runs its cells, and comes back to the queue when it is told of its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import submitit
import torch
from submitit.core.utils import DelayedSubmission

from otil_exp.choices import DeviceKind
from otil_exp.run.scores import settled
from otil_exp.run_folder.cell import Cell
from otil_exp.slurm.batch import TOLD
from otil_exp.slurm.resources import Resources

if TYPE_CHECKING:
    from otil_exp.job import Job

EARLY_S = 90.0
"""Slurm may tell a job of its limit up to a minute early; a little more counts as told of the limit."""

UNTIL_KILLED_S = 600.0
"""Seconds to wait for SIGKILL after SIGTERM. A job that ends by itself then is not requeued after a preemption."""


OTHERS_S = 120.0
"""Seconds that another job may go on with our cells: one whose node failed holds their locks for a while on some file
systems, and waiting longer would waste this job's GPUs."""


class Warned(SystemExit):
    """USR2: the time limit is near, or another job preempts this one."""


class Stopped(SystemExit):
    """SIGTERM: scancel, or a preemption that tells nobody before."""


@dataclass
class Allocation:
    """The callable that submitit runs in the batch script of a job: there it is alone, and its ranks are a step."""

    cells: list[Cell]
    resources: Resources
    timeout_min: int
    signal_delay_s: int
    max_requeues: int
    failures: dict[str, str] = field(default_factory=dict)
    """Why cells failed, by run folder, before the job was requeued."""

    def __call__(self) -> None:
        """Run the cells. Raises RuntimeError with all failures, so that Slurm counts the job as failed."""
        start, pictures = time.monotonic(), self._pictures()
        try:
            with _signals_raise():
                self._check_gpus()
                self._job().run(
                    [cell for cell in self.cells if str(cell.folder.path) not in self.failures], self.failures
                )
        except Warned:
            if all(settled(cell) for cell in self.cells):
                return
            limit = 60 * self.timeout_min - self.signal_delay_s - EARLY_S
            self._come_back(at_limit=time.monotonic() - start >= limit, progress=self._pictures() > pictures)
        except Stopped:
            time.sleep(UNTIL_KILLED_S)
            raise
        if self.failures:
            raise RuntimeError("\n\n".join(self.failures.values()))

    def _job(self) -> Job:
        # Late: who submits does not wait for diffusers.
        from otil_exp.job import Job
        from otil_exp.launch.step import SlurmStep

        step = SlurmStep(
            nodes=self.resources.nodes,
            tasks_per_node=self.resources.tasks_per_node,
            cpus_per_task=self.resources.cpus_per_task,
            folder=submitit.JobEnvironment().paths.folder / "ranks",
        )
        return Job(say=lambda words: print(words, flush=True), step=step, wait_s=OTHERS_S)

    def _check_gpus(self) -> None:
        kind, needed = self.cells[0].effective.device.kind, self.resources.gpus_per_node
        if kind is not DeviceKind.cpu and (seen := torch.cuda.device_count()) < needed:
            raise RuntimeError(
                f"device={kind.name}: {needed} GPUs are needed on {os.uname().nodename} and {seen} are visible "
                f"(CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')})"
            )

    def _pictures(self) -> int:
        """How far the cells are: pictures there are, and cells that are done."""
        return sum(len(list(cell.folder.images.glob("*.png"))) + cell.folder.finished for cell in self.cells)

    def _come_back(self, at_limit: bool, progress: bool) -> NoReturn:
        """Requeue this job. Raises RuntimeError, so that it fails, where that would lead nowhere."""
        if at_limit and not progress:
            raise RuntimeError(
                f"not one picture was finished in timeout_min={self.timeout_min}, so the job is not started again: use "
                "a longer hydra.launcher.timeout_min"
            )
        if (restarts := int(os.environ.get("SLURM_RESTART_COUNT", 0))) >= self.max_requeues:
            raise RuntimeError(f"started again {restarts} times, as many as hydra.launcher.max_num_timeout allows")
        environment = submitit.JobEnvironment()
        again = DelayedSubmission(self)
        again.set_timeout(self.timeout_min, self.max_requeues)
        beside = environment.paths.submitted_pickle.with_suffix(".part")
        again.dump(beside)
        beside.replace(environment.paths.submitted_pickle)
        print(f"job {environment.job_id} goes back to the queue", flush=True)
        _requeue(environment.job_id)
        sys.exit(128 + signal.SIGUSR2)


def _requeue(job_id: str) -> None:
    """Put this job back into the queue. Raises RuntimeError with Slurm's words where it refuses."""
    try:
        subprocess.run(["scontrol", "requeue", job_id], check=True, capture_output=True, text=True, timeout=60)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = str(error.stderr or error).strip()
        raise RuntimeError(
            f"job {job_id} was told of its end, and Slurm does not take it back into the queue ({said}): nothing "
            "that is finished is lost, the same command goes on with what is missing"
        ) from error


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Turn USR2 and SIGTERM into exceptions of the main thread, the first of them only; the ranks end with it.

    After the block they are ignored: the cells are through, and what is left takes no time.

    submitit's own handlers count every end of a short job as a time-out too many, and leave ranks to Slurm.
    """

    def tell(signum: int, frame: FrameType | None) -> NoReturn:
        _ignore()
        raise (Warned if signum == signal.SIGUSR2 else Stopped)(128 + signum)

    for number in TOLD:
        signal.signal(number, tell)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TOLD)  # what came since the batch script began arrives here
    yield
    _ignore()


def _ignore() -> None:
    for number in TOLD:
        signal.signal(number, signal.SIG_IGN)
