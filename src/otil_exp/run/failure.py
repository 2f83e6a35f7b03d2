"""How a run that failed is told from one that is running or was interrupted."""

from __future__ import annotations

from otil_exp.run.attempts import with_last_ended
from otil_exp.run.provenance import now
from otil_exp.run_folder.folder import RunFolder


def note_failure(folder: RunFolder, rank: int, error: str, traceback: str | None) -> None:
    """Name the rank that failed, and why, in the record of a run.

    The last call holds: whoever watched all ranks die knows the cause better than a rank that lost a connection.
    """
    attempts = with_last_ended(folder.record)
    folder.update_record(
        status="failed", ended=now(), attempts=attempts, failed_rank=rank, error=error, traceback=traceback
    )


def note_interruption(folder: RunFolder) -> None:
    """Note that the user, or a scheduler, ended a run: nothing failed, and the same command goes on with it."""
    if folder.record.get("status") == "running":
        folder.update_record(status="preempted", ended=now(), attempts=with_last_ended(folder.record))
