"""What is said of jobs that have ended, where no rank could say it; without a Slurm."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from composing import Compose
from otil_exp.cells.grid import Member, check_grid
from otil_exp.run.failure import note_failure
from otil_exp.run_folder.cell import Cell
from otil_exp.run_folder.folder import RunFolder
from otil_exp.slurm import watch
from otil_exp.slurm.interrupts import undisturbed
from otil_exp.slurm.queue import QueueError, Standing
from otil_exp.slurm.reasons import is_final
from otil_exp.slurm.settings import SlurmSettings
from otil_exp.slurm.submit import Submitted
from otil_exp.slurm.watch import Watch


@pytest.fixture
def member(composed: Compose) -> Member:
    [found] = check_grid([composed("preset=reference", "device=cpu", "prompts.limit=2")], ["preset=reference"])
    return found


def settings(tmp_path: Path) -> SlurmSettings:
    return SlurmSettings(submitit_folder=str(tmp_path / "%j"), poll_s=0.01)


def standing(state: str, reason: str = "") -> Callable[[Iterable[str]], dict[str, Standing]]:
    """What Slurm answers: all jobs alike."""
    return lambda jobs: dict.fromkeys(jobs, Standing(state=state, reason=reason))


def wait(member: Member, tmp_path: Path) -> tuple[dict[str, str], str]:
    console = Console(file=StringIO(), width=500)
    failures: dict[str, str] = {}
    job = Submitted("7", [member], "2026-01-01T00:00:00+00:00")
    Watch(console, settings(tmp_path), failures, lambda members, nodes: []).wait_for([job])
    assert isinstance(console.file, StringIO)
    return failures, console.file.getvalue()


@pytest.mark.parametrize("state", ["OUT_OF_MEMORY", "CANCELLED", "GONE"])
def test_a_job_that_slurm_ended_is_a_failure_that_can_go_on(
    member: Member, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    monkeypatch.setattr(watch, "standings", standing(state))
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
    monkeypatch.setattr(watch, "standings", standing("FAILED"))
    assert "killed; the same command goes on" in str(wait(member, tmp_path)[0])
    (tmp_path / "7").mkdir()
    log = "Traceback (most recent call last):\n  File ...\nRuntimeError: use a longer limit\nsrun: sending SIGCONT\n"
    (tmp_path / "7" / "7_0_log.err").write_text(log)
    assert "job 7 ended as FAILED: use a longer limit\nTraceback" in next(iter(wait(member, tmp_path)[0].values()))


def test_a_job_that_can_never_start_is_not_waited_for(
    member: Member, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["PartitionTimeLimit", "Priority", "PartitionTimeLimit", "PartitionTimeLimit"])
    monkeypatch.setattr(watch, "standings", lambda jobs: standing("PENDING", next(answers))(jobs))
    monkeypatch.setattr(watch, "STUCK_S", 0.005)  # longer than one look, shorter than the pause between two
    [why] = wait(member, tmp_path)[0].values()
    assert "PartitionTimeLimit" in why
    assert "scancel 7" in why
    assert list(answers) == []


def test_a_failure_of_an_earlier_job_is_not_taken_for_this_one(
    member: Member, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "standings", standing("FAILED"))
    note_failure(member.cell.folder, 1, "ValueError: now", "Traceback: here")
    assert list(wait(member, tmp_path)[0].values()) == ["rank 1 failed: ValueError: now\nTraceback: here"]
    member.cell.folder.update_record(ended="2025-01-01T00:00:00+00:00")
    assert "now" not in str(wait(member, tmp_path)[0])


def test_a_silent_slurmctld_is_asked_again_and_given_up_in_the_end(
    member: Member, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["silence", "PENDING", "silence", "COMPLETED"])

    def answer(jobs: Iterable[str]) -> dict[str, Standing]:
        if (word := next(answers)) == "silence":
            raise QueueError("Unable to contact slurm controller")
        return standing(word)(jobs)

    monkeypatch.setattr(watch, "standings", answer)
    member.cell.folder.update_record(status="done")
    assert wait(member, tmp_path)[0] == {}

    answers = iter(["silence"] * 3)
    monkeypatch.setattr(watch, "SILENCE_S", -1.0)
    with pytest.raises(QueueError, match="controller"):
        wait(member, tmp_path)


def test_what_a_user_can_end_is_said_once(member: Member, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A held job is waited for, not given up; limits of a QOS pass when other jobs end."""
    answers = iter(["JobHeldUser"] * 3 + ["QOSMaxJobsPerUserLimit", "Priority", ""])
    monkeypatch.setattr(
        watch, "standings", lambda jobs: standing("PENDING" if (why := next(answers)) else "CANCELLED", why)(jobs)
    )
    said = wait(member, tmp_path)[1]
    assert said.count("job 7 waits, Slurm says JobHeldUser: held: `scontrol release 7` lets it start") == 1
    assert said.count("Slurm says QOSMaxJobsPerUserLimit: a limit of its QOS") == 1
    assert "Slurm says Priority" not in said


@pytest.mark.parametrize(
    ("reason", "final"),
    [
        ("PartitionTimeLimit", True),
        ("QOSMaxWallDurationPerJobLimit", True),
        ("AssocMaxCpuPerJobLimit", True),
        ("QOSMaxJobsPerUserLimit", False),
        ("AssocGrpGRES", False),
        ("JobHeldUser", False),
        ("Resources", False),
    ],
)
def test_reasons_that_never_go_away_are_told_from_those_that_do(reason: str, final: bool) -> None:
    assert is_final(reason) is final


def test_off_a_terminal_a_line_says_now_and_then_how_far_it_is(
    member: Member, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["PENDING"] * 3 + ["CANCELLED"])
    monkeypatch.setattr(watch, "standings", lambda jobs: standing(next(answers), "Priority")(jobs))
    said = wait(member, tmp_path)[1]
    line = "0 of 1 cells ended, 0 failed; 0 jobs running, 1 waiting (Priority 1); 0 of 2 pictures of the rest"
    assert said.count(line) == 1  # three looks within REPORT_S
    answers = iter(["PENDING"] * 3 + ["CANCELLED"])
    monkeypatch.setattr(watch, "REPORT_S", 0.0)
    assert wait(member, tmp_path)[1].count(line) == 3


def test_cells_of_a_node_that_failed_start_again_elsewhere_so_often_and_no_more(
    member: Member, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Job 7 ended with node a, 8 with b; 9 fails for good: hydra.launcher.max_node_failures=2."""
    nodes = {"7": "a", "8": "b", "9": "c"}
    again: list[tuple[str, list[str]]] = []

    def submit_again(members: Sequence[Member], exclude: Sequence[str]) -> list[Submitted]:
        again.append((str(7 + len(again) + 1), list(exclude)))
        return [Submitted(again[-1][0], list(members), "2026-01-01T00:00:00+00:00")]

    monkeypatch.setattr(
        watch, "standings", lambda jobs: {job: Standing(state="NODE_FAIL", nodes=nodes[job]) for job in jobs}
    )
    monkeypatch.setattr(watch, "unhealthy", lambda nodes: [])  # they are back already
    failures: dict[str, str] = {}
    job = Submitted("7", [member], "2026-01-01T00:00:00+00:00")
    Watch(Console(file=StringIO()), settings(tmp_path), failures, submit_again).wait_for([job])
    assert again == [("8", ["a"]), ("9", ["a", "b"])]
    [why] = failures.values()
    assert why.startswith("job 9 ended as NODE_FAIL")


def test_a_job_that_slurm_put_back_keeps_away_from_the_node_that_failed(
    member: Member, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ran on n[1-2] and pends, and n2 is down; then on n1, which is back already. A preemption excludes nothing."""
    places = ("n[1-2]", "n1", "n3")
    looks = iter([look for nodes in places for look in (("RUNNING", nodes), ("PENDING", ""))] + [("CANCELLED", "")])
    down: Iterator[list[str]] = iter([["n2"], [], []])
    excluded: list[tuple[str, str]] = []
    log = tmp_path / "7" / "7_0_log.err"
    log.parent.mkdir()

    def answer(jobs: Iterable[str]) -> dict[str, Standing]:
        state, nodes = next(looks)
        if nodes == "n1":
            log.write_text("slurmstepd-n1: error: *** JOB 7 ON n1 CANCELLED AT 2026 DUE TO NODE FAILURE, SEE ... ***\n")
        return {job: Standing(state=state, nodes=nodes) for job in jobs}

    monkeypatch.setattr(watch, "standings", answer)
    monkeypatch.setattr(watch, "unhealthy", lambda nodes: next(down))
    monkeypatch.setattr(watch, "exclude", lambda job, nodes: excluded.append((job, nodes)))
    said = wait(member, tmp_path)[1]
    assert excluded == [("7", "n2"), ("7", "n2,n1")]
    assert "job 7 is back in the queue, and keeps away from n2" in said


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


def test_what_waited_for_a_reference_waits_for_its_new_job_or_is_scored_after_it(
    composed: Compose, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Job 7 has the reference, and its node fails. Of the jobs that waited for it 8 starts at once and ends before the
    reference's new one, 20; 9 still waits. In the end what 8 ran lacks its scores, and is submitted as 21."""
    presets = ("reference", "balanced", "otil")
    configs = [composed(f"preset={preset}", "topology=2gpu_nosplit", "device=cpu") for preset in presets]
    reference, early, late = check_grid(configs, presets)
    assert reference.cell.folder.is_reference
    monkeypatch.setattr(RunFolder, "finished", True)
    looks = iter(
        [
            {"7": "NODE_FAIL", "8": "RUNNING", "9": "PENDING"},
            {"20": "RUNNING", "8": "COMPLETED", "9": "PENDING"},
            {"20": "COMPLETED", "9": "COMPLETED"},
            {"21": "COMPLETED"},
        ]
    )
    scored = {id(reference), id(late)}
    after: list[tuple[str, str]] = []
    again: list[list[Member]] = []

    def look(jobs: Iterable[str]) -> dict[str, Standing]:
        states = next(looks)
        assert states.keys() == set(jobs)
        return {job: Standing(state=state, nodes="n1") for job, state in states.items()}

    def submit_again(members: Sequence[Member], exclude: Sequence[str]) -> list[Submitted]:
        again.append(list(members))
        return [Submitted(str(19 + len(again)), list(members), "2026-01-01T00:00:00+00:00")]

    def settled(cell: Cell) -> bool:
        return again != [] and any(cell is member.cell for member in (reference, late) if id(member) in scored)

    monkeypatch.setattr(watch, "standings", look)
    monkeypatch.setattr(watch, "settled", settled)
    monkeypatch.setattr(watch, "unhealthy", lambda nodes: ["n1"])
    monkeypatch.setattr(watch, "put_after", lambda job, dependency: after.append((job, dependency)))
    own = settings(tmp_path)
    own.additional_parameters = {"dependency": "singleton"}
    failures: dict[str, str] = {}
    jobs = [
        Submitted(job, [m], "2026-01-01T00:00:00+00:00") for job, m in zip("789", (reference, early, late), strict=True)
    ]
    Watch(Console(file=StringIO(), width=500), own, failures, submit_again).wait_for(jobs)
    assert after == [("9", "singleton,afterany:20")]
    assert [[member.names for member in members] for members in again] == [[reference.names], [early.names]]
    assert failures == {}
    assert not list(looks)
