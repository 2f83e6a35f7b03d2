"""Which rank failed first, and why."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imports torch
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

# A peer of gloo, NCCL or the store is gone: the consequence of a failure elsewhere.
_LOST_CONNECTION = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "failed to recv, got 0 bytes",
    "remote process exited or there was a network error",
    "nccl communicator was aborted",
)

_CAUSES = {
    signal.SIGKILL: "out of memory, or killed by hand",
    signal.SIGTERM: "killed by hand",
    signal.SIGABRT: "an error in C++ code; NCCL ends a rank like this when a collective exceeds "
    "launch.collective_timeout_s",
    signal.SIGSEGV: "an error in C or C++ code",
}


class RankFailure(Exception):
    """A rank failed; the others have been ended.

    rank, local_rank: who.
    exitcode: of its process; negative is the number of the signal that killed it.
    message: "ValueError: ...", "exited with code 3" or "killed by SIGKILL (...)".
    traceback: of the exception, as Python prints it; empty for a process that just died.
    log: of such a process, where the ranks began; they may have gone on in other folders since.
    """

    def __init__(
        self, rank: int, local_rank: int, exitcode: int, message: str, traceback: str = "", log: Path | None = None
    ) -> None:
        super().__init__(rank, local_rank, exitcode, message, traceback, log)  # as given, so that pickling keeps them
        self.rank = rank
        self.local_rank = local_rank
        self.exitcode = exitcode
        self.message = message
        self.traceback = traceback
        self.log = log

    @property
    def signal(self) -> str | None:
        """Name of the signal that killed the rank; None when it ended by itself."""
        return signal.Signals(-self.exitcode).name if self.exitcode < 0 else None

    @property
    def reason(self) -> str:
        """The message, and where to read more."""
        return self.message if self.log is None else f"{self.message}; see {self.log}"

    def __str__(self) -> str:
        if self.traceback:
            return f"rank {self.rank} failed: {self.message}\n\n{self.traceback.rstrip()}"
        return f"rank {self.rank} {'was ' if self.signal else ''}{self.reason}"


def root_cause(error: ChildFailedError, log_dir: Path | None) -> RankFailure:
    """The failure that made the others fail.

    elastic reports every rank that did not end well: first those that it found dead, then those that it ended itself
    because of them. An exception of its own or a sudden death beats an abort, which beats a lost connection, which
    beats having been ended; among equals the earliest counts.
    """
    failures = list(error.failures.items())
    rank, failure = min(failures, key=lambda item: _precedence(item[1], first=item is failures[0]))
    message, traceback = _words(failure)
    # A rank that is stopped, or hangs in the kernel, hears no SIGTERM: it is killed in the end.
    ended = [str(other) for other, its in failures if _ended_by_us(its) or its.exitcode == -signal.SIGKILL]
    if traceback and message.startswith("TimeoutError: a collective") and ended:
        message += f"; still busy with something else, or stopped: rank {', '.join(ended)}"
    log = None if traceback or log_dir is None else log_dir / f"rank{rank}.log"
    return RankFailure(rank, failure.local_rank, failure.exitcode, message, traceback, log)


def _precedence(failure: ProcessFailure, first: bool) -> tuple[int, float]:
    if _recorded(failure):
        lost_connection = any(sign in _words(failure)[0].lower() for sign in _LOST_CONNECTION)
        written = os.stat(failure.error_file).st_mtime  # elastic's own times are whole seconds
        return 2 if lost_connection else 0, written
    # elastic ends nobody before it has found somebody dead: whoever comes first was not ended by it.
    if _ended_by_us(failure) and not first:
        return 3, failure.timestamp
    return 1 if failure.exitcode == -signal.SIGABRT else 0, failure.timestamp


def _recorded(failure: ProcessFailure) -> bool:
    """Whether the rank left an exception behind."""
    return isinstance(failure.message, dict)


def _ended_by_us(failure: ProcessFailure) -> bool:
    """Whether the rank was told to end: by SIGTERM, or 128 + SIGTERM where it needed the grace (`lifetime`)."""
    return not _recorded(failure) and failure.exitcode in (-signal.SIGTERM, 128 + signal.SIGTERM)


def _words(failure: ProcessFailure) -> tuple[str, str]:
    """Message and traceback of a failure."""
    if isinstance(failure.message, dict):
        return failure.message["message"], failure.message["extraInfo"]["py_callstack"]
    if failure.exitcode >= 0:
        return f"exited with code {failure.exitcode}", ""
    signum = signal.Signals(-failure.exitcode)
    cause = _CAUSES.get(signum)
    return f"killed by {signum.name}" + (f" ({cause})" if cause else ""), ""
