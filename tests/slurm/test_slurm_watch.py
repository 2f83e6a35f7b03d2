"""What is said of jobs that have ended, where no rank could say it; without a Slurm."""

from __future__ import annotations

import signal
import subprocess
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from composing import Compose
from otil_exp.cells.grid import Member, check_grid
from otil_exp.run.failure import note_failure
from otil_exp.slurm import watch
from otil_exp.slurm.interrupts import undisturbed
from otil_exp.slurm.queue import QueueError
from otil_exp.slurm.settings import SlurmSettings
from otil_exp.slurm.submit import Ledger, Submitted
from otil_exp.slurm.watch import wait_for


@pytest.fixture
def member(composed: Compose) -> Member:
    [found] = check_grid([composed("preset=reference", "device=cpu", "prompts.limit=2")], ["preset=reference"])
    return found


def settings(tmp_path: Path) -> SlurmSettings:
    return SlurmSettings(submitit_folder=str(tmp_path / "%j"), poll_s=0.01)


@pytest.fixture(autouse=True)
def no_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "reasons", lambda jobs: {})


def wait(member: Member, tmp_path: Path) -> tuple[dict[str, str], str]:
    console = Console(file=StringIO(), width=500)
    failures: dict[str, str] = {}
    wait_for([Submitted("7", [member], "2026-01-01T00:00:00+00:00")], console, settings(tmp_path), failures)
    assert isinstance(console.file, StringIO)
    return failures, console.file.getvalue()


@pytest.mark.parametrize("state", ["OUT_OF_MEMORY", "CANCELLED", "NODE_FAIL", "GONE"])
def test_a_job_that_slurm_ended_is_a_failure_that_can_go_on(
    member: Member, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    monkeypatch.setattr(watch, "states", lambda jobs: dict.fromkeys(jobs, state))
    member.cell.folder.update_record(status="running")
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "7_0_log.err").write_text("slurmstepd: error: what it said\n")
    failures, said = wait(member, tmp_path)
    [why] = failures.values()
    assert why.startswith(f"job 7 ended as {state}: its last words were\n")
    assert "what it said" in why
    assert f"failed: job 7 ended as {state}" in said
    assert member.cell.folder.record["status"] == "preempted"


def test_the_error_of_a_job_comes_before_its_traceback(
    member: Member, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "states", lambda jobs: dict.fromkeys(jobs, "FAILED"))
    assert "killed; the same command goes on" in str(wait(member, tmp_path)[0])
    (tmp_path / "7").mkdir()
    log = "Traceback (most recent call last):\n  File ...\nRuntimeError: use a longer limit\nsrun: sending SIGCONT\n"
    (tmp_path / "7" / "7_0_log.err").write_text(log)
    assert "job 7 ended as FAILED: use a longer limit\nTraceback" in next(iter(wait(member, tmp_path)[0].values()))


def test_a_job_that_can_never_start_is_not_waited_for(
    member: Member, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["PartitionTimeLimit", "Priority", "PartitionTimeLimit", "PartitionTimeLimit"])
    monkeypatch.setattr(watch, "states", lambda jobs: dict.fromkeys(jobs, "PENDING"))
    monkeypatch.setattr(watch, "reasons", lambda jobs: dict.fromkeys(jobs, next(answers)))
    monkeypatch.setattr(watch, "STUCK_S", 0.005)  # longer than one look, shorter than the pause between two
    [why] = wait(member, tmp_path)[0].values()
    assert "PartitionTimeLimit" in why
    assert "scancel 7" in why
    assert list(answers) == []


def test_a_failure_of_an_earlier_job_is_not_taken_for_this_one(
    member: Member, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "states", lambda jobs: dict.fromkeys(jobs, "FAILED"))
    note_failure(member.cell.folder, 1, "ValueError: now", "Traceback: here")
    assert list(wait(member, tmp_path)[0].values()) == ["rank 1 failed: ValueError: now\nTraceback: here"]
    member.cell.folder.update_record(ended="2025-01-01T00:00:00+00:00")
    assert "now" not in str(wait(member, tmp_path)[0])


def test_a_silent_slurmctld_is_asked_again_and_given_up_in_the_end(
    member: Member, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["silence", "PENDING", "silence", "COMPLETED"])

    def states(jobs: dict[str, Submitted]) -> dict[str, str]:
        if (answer := next(answers)) == "silence":
            raise QueueError("Unable to contact slurm controller")
        return dict.fromkeys(jobs, answer)

    monkeypatch.setattr(watch, "states", states)
    member.cell.folder.update_record(status="done")
    assert wait(member, tmp_path)[0] == {}

    answers = iter(["silence"] * 3)
    monkeypatch.setattr(watch, "SILENCE_S", -1.0)
    with pytest.raises(QueueError, match="controller"):
        wait(member, tmp_path)


def test_the_ledger_knows_which_cells_are_in_the_queue(
    member: Member, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ".submitit" / "jobs.json"
    Ledger(path).add([Submitted("21_0", [member], "then")])
    for state, found in (("PENDING", ["21_0"]), ("RUNNING", ["21_0"]), ("COMPLETED", []), ("GONE", [])):
        monkeypatch.setattr("otil_exp.slurm.submit.states", lambda jobs, state=state: dict.fromkeys(jobs, state))
        assert [job.job_id for job in Ledger(path).under_way([member])] == found


def test_ctrl_c_waits_until_what_was_submitted_is_noted(capfd: pytest.CaptureFixture[str]) -> None:
    noted = []
    with pytest.raises(KeyboardInterrupt), undisturbed():
        signal.raise_signal(signal.SIGINT)
        started = subprocess.run(["sh", "-c", "kill -INT $$; echo lived"], check=False)
        noted.append(started.returncode)
    assert noted == [0]
    assert "lived" in capfd.readouterr().out
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
