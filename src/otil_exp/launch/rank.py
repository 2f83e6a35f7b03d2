"""The process of a rank that we start, here or by srun: prepare, call the function, say how it ended."""

from __future__ import annotations

import faulthandler
import logging
import os
import pickle
import signal
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

from otil_exp.launch.collective import explained_timeouts
from otil_exp.launch.environment import place_of_task
from otil_exp.launch.imports import without_collector
from otil_exp.launch.lifetime import die_with_parent, leave_now, leave_when_told
from otil_exp.launch.narrow_link import Hub
from otil_exp.launch.threads import threads_per_rank
from otil_exp.rank_log import RankLog, log_to, open_log


@dataclass(frozen=True, kw_only=True)
class Duty:
    """What the parent hands to its ranks."""

    call: bytes
    """Pickled (function, args): loading it imports the function's module, so it waits until the rank is prepared."""

    parent: int | None
    """Process id of the parent; None for ranks that a scheduler starts, and ends."""

    argv: list[str]
    """The parent's command line."""

    log_dir: Path | None
    """Folder of rank<r>.log."""

    log_level: int
    """The parent's level of logging."""

    threads: int | None
    """CPU threads a rank; None leaves it to the scheduler's word."""

    hub: Hub | None = None
    """Where the ranks meet over a limited link; None: as the machine has it."""


DUTY, RESULT = "duty.pickle", "result.pickle"
"""Files of the folder between the ranks and who starts them."""


def main(folder: Path) -> None:
    """Run this rank of the job in folder/duty.pickle; rank 0 leaves its result in folder/result.pickle."""
    duty: Duty = pickle.loads((folder / DUTY).read_bytes())
    threads = duty.threads
    if "RANK" not in os.environ:  # a task of srun
        place = place_of_task(os.environ)
        os.environ.update(place.variables() | {"TORCHELASTIC_ERROR_FILE": str(error_file(folder, place.rank))})
        threads = threads_per_rank(threads or place.cpus, place.local_world_size)
    rank = int(os.environ["RANK"])
    if duty.parent is not None:
        die_with_parent(duty.parent)
    leave_when_told()
    if duty.hub is not None:
        duty.hub.enter(rank)
    sys.argv = duty.argv
    os.environ["OMP_NUM_THREADS"] = str(threads)  # read when torch is loaded
    # Threads that spin while they wait take the core from the one they wait for, where other processes run too.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    log = _prepare_output(duty, rank)
    try:
        result = _call(duty)
        if rank == 0:
            (folder / RESULT).write_bytes(result)
    except KeyboardInterrupt:  # forwarded by the parent, which says so itself
        leave_now(128 + signal.SIGINT)
    except SystemExit as stop:
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
        leave_now(stop.code if isinstance(stop.code, int) else int(stop.code is not None))
    except Exception:  # on record: the parent shows it
        if log is not None:
            traceback.print_exc(file=log.stream)
        leave_now(1)
    faulthandler.unregister(signal.SIGTERM)


def error_file(folder: Path, rank: int) -> Path:
    """Where a task of srun leaves its exception."""
    return folder / f"error{rank}.json"


def _prepare_output(duty: Duty, rank: int) -> RankLog | None:
    """Set up stdout, stderr and logging; returns the rank's log, if it has one."""
    log = open_log(duty.log_dir, rank) if duty.log_dir is not None else None
    logging.getLogger().setLevel(duty.log_level)
    if log is not None:
        # A hung rank ends by SIGTERM; its log then says where it stood.
        faulthandler.register(signal.SIGTERM, file=log.stream, all_threads=False, chain=True)
        if rank == 0:
            log_to(log.stream, rank)
        else:
            log.redirect_output()
    # The log has everything; what libraries say of themselves (INFO) would break up the user's progress bar.
    quiet = rank == 0 and log is not None and duty.log_level >= logging.INFO
    log_to(sys.stderr, rank, logging.WARNING if quiet else logging.NOTSET)
    return log


def _call(duty: Duty) -> bytes:
    """Call the function; returns its pickled result, and leaves an exception where elastic looks for it."""
    with without_collector():
        # Late: these import torch, which must find OMP_NUM_THREADS.
        from torch.distributed.elastic.multiprocessing.errors import record

        from otil_exp.launch.recording import WholeFileErrorHandler

    def call() -> bytes:
        with explained_timeouts():
            with without_collector():
                function, args = pickle.loads(duty.call)
            return pickle.dumps(function(*args))

    return record(call, WholeFileErrorHandler())() or pickle.dumps(None)  # None: sys.exit(0)
