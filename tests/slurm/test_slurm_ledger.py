"""The ledger of submitted jobs: whose job is whose, and one command at a time; without a Slurm."""

from __future__ import annotations

import json
import multiprocessing
import time
from pathlib import Path

import pytest

from otil_exp.slurm import ledger as ledger_module
from otil_exp.slurm.ledger import Entry, Ledger
from otil_exp.slurm.queue import GONE, Standing

OURS = Entry(job="21_0", cluster="here", submitted="then", script="/grid/.submission_a.sh", title="preset=otil")


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.setattr(ledger_module, "cluster_name", lambda: "here")
    found = Ledger(tmp_path)
    with found.locked(print):
        found.add({"abc": OURS})
    return found


def answer(monkeypatch: pytest.MonkeyPatch, state: str, script: str = OURS.script) -> None:
    standing = Standing(state=state, script=script)
    monkeypatch.setattr(ledger_module, "standings", lambda jobs: dict.fromkeys(jobs, standing))


def test_it_knows_which_cells_are_in_the_queue(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    for state, found in (("PENDING", ["abc"]), ("RUNNING", ["abc"]), ("COMPLETED", []), (GONE, [])):
        answer(monkeypatch, state)
        assert list(ledger.in_queue(["abc", "not submitted"])) == found


def test_a_job_that_got_the_number_of_ours_is_not_taken_for_it(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, "RUNNING", script="/home/somebody/train.sh")
    assert ledger.in_queue(["abc"]) == {}
    answer(monkeypatch, "RUNNING")
    monkeypatch.setattr(ledger_module, "cluster_name", lambda: "another")
    assert ledger.in_queue(["abc"]) == {}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"abc": ["21_0", "then"]}', '{"abc": {"job": "21_0"}}'])
def test_a_broken_ledger_is_named_with_what_to_do(tmp_path: Path, content: str) -> None:
    path = tmp_path / ".submitit" / "jobs.json"
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(ValueError, match=rf"{path} is not whole, .* delete that file"):
        _ = Ledger(tmp_path).entries


def add_slowly(grid: Path, name: str) -> None:
    """A command that reads, submits for a while and writes."""
    ledger = Ledger(grid)
    with ledger.locked(lambda words: (grid / f"{name} waited").write_text(words)):
        known = ledger.entries
        time.sleep(0.3)
        ledger.add({name: Entry(job=str(len(known)), cluster="", submitted="", script="", title="")})


def test_commands_at_once_wait_for_each_other_and_lose_nothing(tmp_path: Path) -> None:
    """Each saw what those before it had noted: the numbers are 0 to 3, once each."""
    start = multiprocessing.get_context("fork")
    commands = [start.Process(target=add_slowly, args=(tmp_path, f"cell{i}")) for i in range(4)]
    for command in commands:
        command.start()
    for command in commands:
        command.join(60)
    entries = json.loads((tmp_path / ".submitit" / "jobs.json").read_text())
    assert sorted(entry["job"] for entry in entries.values()) == ["0", "1", "2", "3"]
    waited = [path.read_text() for path in tmp_path.glob("* waited")]
    assert all("is submitting to this grid: waiting for it" in words for words in waited)


def test_a_command_that_holds_it_for_too_long_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "WAIT_S", 0.0)
    sentence = r"process \d+ on \S+ has been submitting to this grid for 0 minutes"
    with Ledger(tmp_path).locked(print), pytest.raises(ValueError, match=sentence), Ledger(tmp_path).locked(print):
        pass
