"""Which cells a job runs: not those that are done, whole and scored, nor those that another command runs now."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from composing import Compose
from otil_exp import job as job_module
from otil_exp.cells.prepare import prepare
from otil_exp.job import Job
from otil_exp.run.scores import settled
from otil_exp.run_folder.cell import Cell
from run_folder.test_lock import held_by_another


@pytest.fixture
def cells(composed: Compose) -> list[Cell]:
    few = ("device=cpu", "preset=reference", "prompts.limit=1", "mode=benchmark")
    return [prepare(composed(*few, f"num_inference_steps={steps}")) for steps in (3, 4)]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[list[Cell]]:
    """What jobs launch, which is done at once."""
    found: list[list[Cell]] = []

    def launch(self: Job, cells: list[Cell]) -> None:
        found.append(cells)
        for cell in cells:
            cell.folder.finish(is_reference=True)

    monkeypatch.setattr(Job, "_launch", launch)
    monkeypatch.setattr(job_module, "POLL_S", 0.05)
    return found


def run_beside_another(cells: list[Cell], other_ends: bool) -> tuple[list[str], dict[str, str]]:
    """Run cells while another process holds the first one, which it lets go of once it was waited for."""
    said: list[str] = []
    waited, failures = threading.Event(), dict[str, str]()

    def say(words: str) -> None:
        said.append(words)
        if "waiting for it" in words:
            waited.set()

    with held_by_another(cells[0].folder.path) as other:

        def end() -> None:
            if waited.wait(60) and other_ends:
                cells[0].folder.finish(is_reference=True)
            other.kill()

        thread = threading.Thread(target=end)
        thread.start()
        Job(say=say).run(cells, failures)
        thread.join()
        assert f"run by process {other.pid}" in "\n".join(said)
    return said, failures


def test_a_cell_that_another_command_runs_is_waited_for_and_skipped(
    cells: list[Cell], launched: list[list[Cell]]
) -> None:
    """The free cell goes first, so that nobody waits while there is work, and nothing fails."""
    said, failures = run_beside_another(cells, other_ends=True)
    assert launched == [[cells[1]]]
    assert failures == {}
    assert said[-1].startswith(f"{cells[0].label}: done already, skipped")


def test_a_cell_whose_command_was_killed_is_taken_over(cells: list[Cell], launched: list[list[Cell]]) -> None:
    _, failures = run_beside_another(cells, other_ends=False)
    assert launched == [[cells[1]], [cells[0]]]
    assert failures == {}


def test_a_rank_that_others_started_does_not_wait(cells: list[Cell], launched: list[list[Cell]]) -> None:
    failures: dict[str, str] = {}
    with held_by_another(cells[0].folder.path) as other:
        Job(say=lambda words: None, hosted=True).run(cells[:1], failures)
        assert f"is being run by process {other.pid}" in failures[str(cells[0].folder.path)]
    assert launched == []


def test_a_cell_with_a_broken_file_fails_alone(cells: list[Cell], launched: list[list[Cell]], tmp_path: Path) -> None:
    cells[0].folder.path.mkdir(parents=True)
    (cells[0].folder.path / "record.json").write_text("{")
    failures: dict[str, str] = {}
    Job(say=lambda words: None).run(cells, failures)
    assert launched == [[cells[1]]]
    assert "record.json is not whole" in failures[str(cells[0].folder.path)]


@pytest.mark.parametrize("damage", [lambda data: data[:-5], lambda data: b"", lambda data: bytes(len(data))])
def test_a_finished_cell_with_a_damaged_picture_is_run_again(
    composed: Compose,
    launched: list[list[Cell]],
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[bytes], bytes],
) -> None:
    monkeypatch.setattr(job_module, "score_run", lambda *arguments: None)
    cell = prepare(composed("device=cpu", "preset=reference", "prompts.limit=1"))
    cell.folder.write_image(0, Image.new("RGB", (8, 8), "red"))
    cell.folder.finish(is_reference=True)
    Job(say=lambda words: None).run([cell], {})
    assert launched == []
    path = cell.folder.image_path(0)
    path.write_bytes(damage(path.read_bytes()))
    assert not settled(cell)
    Job(say=lambda words: None).run([cell], {})
    assert launched == [[cell]]
