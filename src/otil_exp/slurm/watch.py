"""Wait for the jobs of a grid: how far it is, why jobs wait, and at the end everything that failed."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.status import Status

from otil_exp.cells.grid import Member
from otil_exp.run.failure import note_interruption
from otil_exp.run.scores import settled
from otil_exp.run_folder.cell import Cell
from otil_exp.slurm.queue import (
    NODE_FAILED,
    QueueError,
    Standing,
    cancel,
    exclude,
    put_after,
    standings,
    unhealthy,
)
from otil_exp.slurm.reasons import advice, is_final
from otil_exp.slurm.script import dependency, log_of
from otil_exp.slurm.settings import SlurmSettings
from otil_exp.slurm.submit import Submitted

SILENCE_S = 600.0
"""How long slurmctld may stay silent before the wait is given up, in seconds; the jobs go on."""

SETTLE_S = 10.0
"""Seconds that the record of a job that has just ended may take to reach this machine over a shared file system."""

STUCK_S = 60.0
"""Seconds that a job may wait for a reason that will not go away before its cells count as failed."""

REPORT_S = 180.0
"""Seconds between lines that say how far the grid is, where no terminal shows it all the time."""


class Watch:
    """The wait of one command for its jobs."""

    def __init__(
        self,
        console: Console,
        settings: SlurmSettings,
        failures: dict[str, str],
        submit_again: Callable[[Sequence[Member], Sequence[str]], Sequence[Submitted]],
    ) -> None:
        """failures: gets why cells failed, by run folder; submit_again: submits cells to other nodes than these."""
        self._console = console
        self._settings = settings
        self._failures = failures
        self._submit_again = submit_again
        self._ran_on: dict[str, str] = {}
        """Nodes of the jobs that were seen running."""
        self._words_of_failure: Counter[str] = Counter()
        """How often the logs of jobs had said that a node failed, when they were last read."""
        self._bad_nodes: list[str] = []
        self._node_failures: Counter[Path] = Counter()
        """How often a cell's node failed, by run folder."""
        self._waiting: dict[str, Submitted] = {}
        self._members: list[Member] = []
        self._reference_moved = False
        """Whether a reference has got another job, so that cells which had waited for the first may lack its scores."""
        self._final_since: dict[str, float] = {}
        """Since when jobs have waited for a reason that does not go away."""
        self._said: set[tuple[str, str]] = set()
        """Jobs and reasons that advice was given on."""
        self._reported = 0.0

    def wait_for(self, jobs: Sequence[Submitted]) -> None:
        """Wait until all jobs have ended, or can never start. Raises QueueError when Slurm stays silent."""
        self._waiting = {job.job_id: job for job in jobs}
        self._members = [member for job in jobs for member in job.members]
        answered = time.monotonic()
        with self._console.status("waiting for Slurm") as line:  # shown on terminals only
            while self._waiting:
                try:
                    self._look(standings(self._waiting), line)
                    if not self._waiting and self._reference_moved:
                        self._score_again()
                    answered = time.monotonic()
                except QueueError as error:
                    if time.monotonic() - answered > SILENCE_S:
                        raise
                    line.update(f"Slurm does not answer ({error}); asking again")
                if self._waiting:
                    time.sleep(self._settings.poll_s)

    def _look(self, found: dict[str, Standing], line: Status) -> None:
        for job_id, standing in found.items():
            if standing.state in NODE_FAILED:
                self._replace(self._waiting.pop(job_id), found)
            elif not standing.under_way:
                self._take_in(self._waiting.pop(job_id), standing.state)
            elif standing.state == "PENDING" and (nodes := self._ran_on.pop(job_id, None)) is not None:
                self._keep_away(job_id, nodes)
            elif standing.nodes:
                self._ran_on[job_id] = standing.nodes
        found |= {job_id: Standing() for job_id in self._waiting if job_id not in found}  # submitted just now
        for job_id in self._final(found):
            self._give_up(self._waiting.pop(job_id), found[job_id].reason)
        self._advise(found)
        words = self._how_far(found)
        line.update(words)
        if self._waiting and not self._console.is_terminal and time.monotonic() - self._reported >= REPORT_S:
            self._reported = time.monotonic()
            self._say(f"{time.strftime('%H:%M')} {words}")

    def _keep_away(self, job_id: str, nodes: str) -> None:
        """See that a job which Slurm has put back into the queue does not return to a node that failed."""
        failed_before = self._words_of_failure[job_id]
        self._words_of_failure[job_id] = _words_of_failure(log_of(job_id, self._settings))
        bad = unhealthy(nodes)
        if not bad and self._words_of_failure[job_id] > failed_before:  # it is back already
            bad = [nodes]
        if not bad:  # preempted, or told of its limit
            return
        self._bad_nodes += [node for node in bad if node not in self._bad_nodes]
        job = self._waiting[job_id]
        if not self._may_start_again(job):
            cancel([job_id])
            self._take_in(self._waiting.pop(job_id), "NODE_FAIL")
            return
        exclude(job_id, ",".join(filter(None, [self._settings.exclude, *self._bad_nodes])))
        self._say(f"job {job_id} is back in the queue, and keeps away from {', '.join(bad)} (`sinfo -R` says why)")

    def _replace(self, job: Submitted, found: dict[str, Standing]) -> None:
        """Submit the cells of a job again that ended with its node; the last failure counts."""
        standing = found[job.job_id]
        nodes = standing.nodes or self._ran_on.get(job.job_id, "")
        bad = (unhealthy(nodes) or [nodes]) if nodes else []
        self._bad_nodes += [node for node in bad if node not in self._bad_nodes]
        left = [member for member in job.members if not settled(member.cell)]
        again = self._submit_again(left, self._bad_nodes) if left and self._may_start_again(job) else []
        taken = {id(member) for other in again for member in other.members}
        for other in again:
            self._waiting[other.job_id] = other
            self._say(f"job {job.job_id} ended as {standing.state} on {nodes}: its cells start again as {other.job_id}")
        self._wait_for_references(again, found)
        rest = [member for member in job.members if id(member) not in taken]
        self._take_in(Submitted(job.job_id, rest, job.since), standing.state)

    def _wait_for_references(self, again: Sequence[Submitted], found: dict[str, Standing]) -> None:
        """Let jobs that waited for references wait for their new jobs. The failure of the node has let them go: those
        that have started meanwhile are scored in the end."""
        new = [job.job_id for job in again if _has_reference(job)]
        if not new or not self._settings.after_reference:
            return
        self._reference_moved = True
        for job_id, job in self._waiting.items():
            if job_id in found and found[job_id].state == "PENDING" and not _has_reference(job):
                with suppress(QueueError):  # it starts just now
                    put_after(job_id, dependency(self._settings, new))

    def _score_again(self) -> None:
        """Submit cells that ended before their reference had its new job: what they lack is scores."""
        left = [member for member in self._members if member.cell.folder.finished and not settled(member.cell)]
        for job in self._submit_again(left, self._bad_nodes) if left else []:
            self._waiting[job.job_id] = job
            titles = ", ".join(member.title for member in job.members)
            self._say(f"{titles}: ended before their reference, scored by job {job.job_id}")
        self._reference_moved = False

    def _may_start_again(self, job: Submitted) -> bool:
        """Count a failure of a job's node, and say whether it is one too many."""
        paths = [member.cell.folder.path for member in job.members]
        self._node_failures.update(paths)
        return max(self._node_failures[path] for path in paths) <= self._settings.max_node_failures

    def _say(self, words: str) -> None:
        self._console.print(words, markup=False, highlight=False)

    def _advise(self, found: dict[str, Standing]) -> None:
        """Say once, of jobs that wait for something else than their turn, what can be done."""
        alike: dict[tuple[str, str], list[str]] = {}
        for job_id in self._waiting:
            reason = found[job_id].reason
            master = job_id.split("_")[0]
            if (words := advice(reason, job_id)) and (master, reason) not in self._said:
                alike.setdefault((master, reason), []).append(words)
        for (master, reason), [first, *others] in alike.items():
            self._said.add((master, reason))
            more = f" (and {len(others)} more of job {master})" if others else ""
            self._say(f"job {master} waits, Slurm says {reason}: {first}{more}")

    def _final(self, found: dict[str, Standing]) -> list[str]:
        """Jobs whose reason to wait has been one that does not go away for STUCK_S."""
        now = time.monotonic()
        alike = {job_id for job_id in self._waiting if is_final(found[job_id].reason)}
        self._final_since = {job_id: self._final_since.get(job_id, now) for job_id in sorted(alike)}
        return [job_id for job_id, since in self._final_since.items() if now - since >= STUCK_S]

    def _give_up(self, job: Submitted, reason: str) -> None:
        """Count the cells of a job that cannot start as failed; the job stays where it is."""
        words = (
            f"job {job.job_id} cannot start as it was asked for, Slurm says {reason}: compare "
            f"hydra.launcher.partition, timeout_min, cpus_per_task, mem_gb and ranks_per_node with what "
            f"`scontrol show partition` allows, then `scancel {job.job_id}` and type the command again"
        )
        for member in job.members:
            self._failures[str(member.cell.folder.path)] = words
            self._say(f"{member.title}: {words}")

    def _how_far(self, found: dict[str, Standing]) -> str:
        left = [member.cell for job in self._waiting.values() for member in job.members]
        running = sum(found[job_id].state == "RUNNING" for job_id in self._waiting)
        pictures = sum(len(list(cell.folder.images.glob("*.png"))) for cell in left)
        wanted = sum(len(cell.prompts) for cell in left)
        reasons = Counter(found[job_id].reason for job_id in self._waiting if found[job_id].reason)
        behind = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
        behind = f" ({behind})" if behind else ""
        cells = len(self._members)
        return (
            f"{cells - len(left)} of {cells} cells ended, {len(self._failures)} failed; {running} jobs "
            f"running, {len(self._waiting) - running} waiting{behind}; {pictures} of {wanted} pictures of the rest"
        )

    def _take_in(self, job: Submitted, state: str) -> None:
        """Read how the cells of a job that has ended went, and say so."""
        for member in job.members:
            if (why := self._why_not_done(member.cell, job, state)) is not None:
                self._failures[str(member.cell.folder.path)] = why
            word = "done" if why is None else f"failed: {why.splitlines()[0]}"
            self._say(f"{member.title}: {word} (job {job.job_id})")

    def _why_not_done(self, cell: Cell, job: Submitted, state: str) -> str | None:
        """Why a cell is not finished and scored, with the first traceback; None if it is."""
        folder, deadline = cell.folder, time.monotonic() + SETTLE_S
        while not folder.finished and state == "COMPLETED" and time.monotonic() < deadline:
            time.sleep(0.5)
        if folder.finished and (state == "COMPLETED" or settled(cell)):
            return None
        record = folder.record
        if record.get("status") == "failed" and (record.get("ended") or "") >= job.since:
            return f"rank {record['failed_rank']} failed: {record['error']}\n{record['traceback'] or ''}".rstrip()
        note_interruption(folder)
        return f"job {job.job_id} ended as {state}: {_last_words(log_of(job.job_id, self._settings))}"


def _has_reference(job: Submitted) -> bool:
    return any(member.cell.folder.is_reference for member in job.members)


def _words_of_failure(log: Path) -> int:
    """How often slurmstepd has written that a job's node failed; nothing where it died with the node."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return text.count("DUE TO NODE FAILURE")


def _last_words(log: Path) -> str:
    """What a job's own process said of its end: its error in a line, then the end of its log."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    if not lines:
        return "it left no word, so it was cancelled or killed; the same command goes on with what is missing"
    errors = [found[1] for line in lines if (found := re.match(r"(?:\w+\.)*\w*(?:Error|Exception): (.*)", line))]
    return "\n".join([errors[-1] if errors else "its last words were", *lines[-15:], f"({log})"])
