"""otil-exp-status and otil-exp-cancel, over folders and a queue made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from otil_exp import status
from otil_exp.run_folder.folder import RunFolder
from otil_exp.slurm import ledger as ledger_module
from otil_exp.slurm.ledger import Entry, Ledger
from otil_exp.slurm.queue import QueueError, Standing
from otil_exp.status import cancel_main, look, status_main

PROMPTS = [{"index": index, "text": "a", "seed": index} for index in range(2)]
JOBS = {"waits": "21_0", "runs": "21_1", "gone": "21_2"}


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Cells of every kind: three of a ledger, and four that only have run folders."""
    queue = {
        "21_0": Standing(state="PENDING", reason="JobHeldUser", script="s"),
        "21_1": Standing(state="RUNNING", script="s"),
        "21_2": Standing(state="COMPLETED", script="s"),
    }
    monkeypatch.setattr(ledger_module, "cluster_name", lambda: "here")
    monkeypatch.setattr(ledger_module, "standings", lambda jobs: {job: queue[job] for job in jobs})
    folder = tmp_path / "grid"
    ledger = Ledger(folder)
    then = "2026-01-01T00:00:00+00:00"
    with ledger.locked(print):
        ledger.add(
            {
                name: Entry(job=job, cluster="here", submitted=then, script="s", title=f"preset={name}")
                for name, job in JOBS.items()
            }
        )
    begun = {"method": "otil", "topology": {"name": "1gpu"}, "prompts": PROMPTS, "started": then}
    record(folder, "runs", begun, status="running")
    record(folder, "done", begun, status="done", ended="2026-01-01T01:02:03+00:00")
    record(folder, "failed", begun, status="failed", failed_rank=2, error="ValueError: no [/INST]", ended=then)
    record(folder, "killed", begun, status="running")
    (folder / "broken").mkdir()
    (folder / "broken" / "record.json").write_text("{")
    return folder


def record(folder: Path, name: str, begun: dict[str, object], **values: object) -> None:
    RunFolder(folder / name).update_record(**begun, **values)


def test_every_kind_of_cell_is_told_with_its_reason(grid: Path) -> None:
    cells, queue = look(grid)
    assert queue.silent == ""
    assert [(cell.state, cell.title, cell.job) for cell in cells] == [
        ("running", "preset=runs", "21_1"),
        ("queued", "preset=waits", "21_0"),
        ("failed", "otil 1gpu (failed)", ""),
        ("interrupted", "otil 1gpu (killed)", ""),
        ("ended", "preset=gone", "21_2"),
        ("broken", "broken", ""),
        ("done", "otil 1gpu (done)", ""),
    ]
    why = [cell.why for cell in cells]
    assert "JobHeldUser" in why[1]
    assert "rank 2 failed: ValueError: no [/INST]" in why[2]
    assert ".submitit/21_2" in why[4]


def test_the_page_has_a_row_a_cell_and_a_line_of_counts(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_main([str(grid)]) == 0
    said = capsys.readouterr().out
    assert "1:02:03" in said
    assert "7 cells: 1 running, 1 queued, 1 failed, 1 interrupted, 1 ended, 1 broken, 1 done" in said
    assert "0 of 2" in said


def test_a_grid_of_a_name_lies_below_outputs(
    grid: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (grid.parent / "outputs").mkdir()
    grid.rename(grid.parent / "outputs" / "sweep")
    monkeypatch.chdir(grid.parent)
    assert status_main(["sweep"]) == 0
    (grid.parent / "sweep").mkdir()  # as a checkout has docs/ and tests/
    assert status_main(["sweep"]) == 0
    capsys.readouterr()
    assert status_main(["another"]) == 1
    assert "/outputs/another holds no grid: type the name= of one below ./outputs" in capsys.readouterr().out
    assert status_main([str(grid.parent / "another")]) == 1
    assert "/outputs/another" not in capsys.readouterr().out


def test_without_an_answer_of_slurm_the_folders_still_speak(
    grid: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def silent(jobs: object) -> dict[str, Standing]:
        raise QueueError("there is no squeue on the PATH")

    monkeypatch.setattr(ledger_module, "standings", silent)
    assert status_main([str(grid)]) == 0
    said = capsys.readouterr().out
    assert "the queue is unknown: there is no squeue on the PATH" in said
    assert "1 done" in said
    assert cancel_main([str(grid)]) == 1


def test_what_is_in_the_queue_is_cancelled_and_nothing_else(
    grid: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cancelled: list[str] = []
    monkeypatch.setattr(status, "cancel", cancelled.extend)
    assert cancel_main([str(grid)]) == 0
    assert sorted(cancelled) == ["21_0", "21_1"]
    assert "preset=waits: cancelled job 21_0 (PENDING)" in capsys.readouterr().out


def test_cells_of_one_method_are_told_apart_without_a_ledger(tmp_path: Path) -> None:
    begun = {"method": "otil", "topology": {"name": "1gpu"}, "prompts": PROMPTS, "started": "2026-01-01T00:00:00+00:00"}
    for quantizer in ("int8", "none"):
        record(tmp_path, quantizer, begun, status="failed")
        RunFolder(tmp_path / quantizer).write_config({"codec": {"quantizer": quantizer}})
    assert [cell.title for cell in look(tmp_path)[0]] == ["otil 1gpu quantizer=int8", "otil 1gpu quantizer=none"]


def test_a_cell_is_called_by_what_the_grid_s_other_cells_have_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "cluster_name", lambda: "here")
    monkeypatch.setattr(ledger_module, "standings", lambda jobs: {"1": Standing(state="RUNNING", script="s")})
    ledger = Ledger(tmp_path)
    with ledger.locked(print):
        for name in ("guide", "otil"):
            title = f"output_dir=/a name=s preset={name} topology=2gpu_nosplit"
            ledger.add({name: Entry(job="1", cluster="here", submitted="2026-01-01", script="s", title=title)})
    cells = look(tmp_path)[0]
    assert sorted(cell.title for cell in cells) == ["preset=guide", "preset=otil"]
    assert {cell.why for cell in cells} == {"in job 1, which runs and has not come to it yet"}


def test_a_grid_of_which_nothing_was_taken_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ".submitit").mkdir()
    assert status_main([str(tmp_path)]) == 0
    assert f"no cell of {tmp_path} was begun, and Slurm has taken none" in capsys.readouterr().out
