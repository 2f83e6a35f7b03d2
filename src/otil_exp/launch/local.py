"""Start the ranks on this machine, by torch's elastic launcher."""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from otil_exp.launch.failure import root_cause
from otil_exp.launch.handover import hand_over, result_of
from otil_exp.launch.narrow_link import NarrowLink, hub_of
from otil_exp.launch.threads import threads_per_rank

T = TypeVar("T")

MONITOR_INTERVAL_S = 0.1
"""How often the ranks are looked at, in seconds."""

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")


def start_ranks(
    function: Callable[..., T],
    world_size: int,
    *args: object,
    log_dir: Path | None,
    threads: int | None,
    link: NarrowLink | None = None,
) -> T:
    """Call `function(*args)` on `world_size` fresh processes of this machine; return what rank 0 returned.

    elastic runs the ranks as commands rather than as functions: each is then in a session of its own (Ctrl-C reaches it
    once, through the parent), does not run the user's main script again, and elastic reports every rank's end, not only
    the first it notices, which names the rank that was killed among those that lost their connection to it.

    Raises RankFailure, KeyboardInterrupt or SystemExit as `otil_exp.launch.launch` says.
    """
    with (
        tempfile.TemporaryDirectory(prefix="otil-exp-launch-") as name,
        hub_of(link) as hub,
        _quiet_elastic(),
        _signal_handlers_kept(),
    ):
        folder = Path(name)
        command = hand_over(
            folder,
            function,
            args,
            parent=os.getpid(),
            log_dir=log_dir,
            threads=threads_per_rank(threads, world_size),
            hub=hub,
        )
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=world_size,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="localhost",
            max_restarts=0,
            monitor_interval=MONITOR_INTERVAL_S,
            logs_specs=ErrorFilesOnly(folder),
            # elastic would also handle what nohup and background shells ignore.
            signals_to_handle=",".join(s for s in _SIGNALS if signal.getsignal(getattr(signal, s)) != signal.SIG_IGN),
        )
        try:
            elastic_launch(config, command[0])(*command[1:])
        except ChildFailedError as error:
            raise root_cause(error, log_dir) from None
        except SignalException as stop:
            if stop.sigval == signal.SIGINT:
                raise KeyboardInterrupt from None
            raise SystemExit(128 + stop.sigval) from None
        result: T = result_of(folder)
        return result


class ErrorFilesOnly(LogsSpecs):
    """Tells elastic where ranks leave their exceptions, and to keep its hands off their stdout and stderr."""

    def __init__(self, folder: Path) -> None:
        super().__init__(log_dir=str(folder))

    @property
    def root_log_dir(self) -> str:
        return str(self._root_log_dir)

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """One error file a rank; an empty path is elastic's word for "as inherited"."""
        files = {local_rank: f"{self.root_log_dir}/error{local_rank}.json" for local_rank in envs}
        for local_rank, env in envs.items():
            env["TORCHELASTIC_ERROR_FILE"] = files[local_rank]
        inherited = dict.fromkeys(envs, "")
        return LogsDest(stdouts=inherited, stderrs=inherited, error_files=files)


@contextmanager
def _quiet_elastic() -> Iterator[None]:
    """Keep elastic's log and its failure banner from the terminal: RankFailure says what they say."""
    logger = logging.getLogger("torch.distributed")
    propagate, handlers = logger.propagate, logger.handlers
    logger.propagate, logger.handlers = False, [logging.NullHandler()]
    try:
        yield
    finally:
        logger.propagate, logger.handlers = propagate, handlers


@contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """Put the process's signal handlers back: elastic leaves its own behind."""
    if threading.current_thread() is not threading.main_thread():  # elastic then sets none
        yield
        return
    handlers: dict[int, Any] = {getattr(signal, s): signal.getsignal(getattr(signal, s)) for s in _SIGNALS}
    try:
        yield
    finally:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)
