"""One broken file costs its own run: every file of a run folder under every damage, as each reader meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from otil_exp.config import MetricsConfig
from otil_exp.evaluate import run_folders
from otil_exp.report.collect import collect, find_folders
from otil_exp.report.table import summary
from otil_exp.run.scores import Share, score_run
from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.reference import find_reference
from otil_exp.run_folder.snapshot import Snapshot
from otil_exp.run_folder.whole import BrokenFolderError
from run_folder.finished import finished

Damage = Callable[[Path], object]

DAMAGES: dict[str, Damage] = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3]),
    "cut between lines": lambda path: path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1])),
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "empty": lambda path: path.write_bytes(b""),
    "noise": lambda path: path.write_bytes(b"\xff\xfe\x00 noise"),
}

FILES = ("record.json", "metrics.json", "config.yaml", "steps.csv", "images/01.png")


def older_record(path: Path) -> None:
    """As version 0.1 wrote it: nothing says who is the reference."""
    record = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in record.items() if key != "is_reference"}))


OTHER_FORMS: list[tuple[str, Damage]] = [
    ("record.json", lambda path: path.write_text("[1, 2]")),
    ("record.json", lambda path: path.write_text('{"status": "done", "prompts": ["a", "b"]}')),
    ("record.json", lambda path: path.write_text('{"status": 3}')),
    ("metrics.json", lambda path: path.write_text("[]")),
    ("metrics.json", lambda path: path.write_text('{"ref/psnr": 31.4}')),
    ("metrics.json", lambda path: path.write_text('{"ref/psnr": {"value": "31.4"}}')),
    ("config.yaml", lambda path: path.write_text("just words")),
    ("steps.csv", lambda path: path.write_text("rank,prompt\n0,0\n")),
]


def shown(folders: list[RunFolder]) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(summary(folders))
    return capture.get()


def see_that_only_this_one_is_broken(grid: Path, file: Path) -> None:
    """Table, report and evaluation name the file, have a row for the run, and go on with the others."""
    folders = find_folders([grid])
    assert [(f.path.name, f.record["status"]) for f in folders if f.record["status"] != "done"] == [("b", "broken")]
    text = shown([RunFolder(folder.path) for folder in folders])
    assert text.count("done") == 2
    assert str(file) in text
    assert {run.folder.path.name: run.status for run in collect(folders)} == {"a": "done", "b": "broken", "ref": "done"}
    assert {folder.path.name for folder in run_folders([grid])} == {"a", "b", "ref"}
    with pytest.raises(BrokenFolderError, match=str(file)):
        score_run(RunFolder(grid / "b"), MetricsConfig(), Share.all())
    reference = find_reference(RunFolder(grid / "a"))
    assert reference is not None
    assert reference.path.name == "ref"


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    finished(tmp_path / "ref", reference=True)
    for name in ("a", "b"):
        finished(tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", [name for name in FILES if not name.endswith("png")])
def test_a_damaged_file_is_one_broken_row(grid: Path, name: str, damage: str) -> None:
    file = grid / "b" / name
    DAMAGES[damage](file)
    see_that_only_this_one_is_broken(grid, file)


@pytest.mark.parametrize(("name", "damage"), OTHER_FORMS)
def test_a_file_of_another_form_is_one_broken_row(grid: Path, name: str, damage: Damage) -> None:
    file = grid / "b" / name
    damage(file)
    see_that_only_this_one_is_broken(grid, file)


@pytest.mark.parametrize("name", ["config.yaml", "steps.csv"])
def test_a_file_that_is_gone_is_one_broken_row(grid: Path, name: str) -> None:
    (grid / "b" / name).unlink()
    see_that_only_this_one_is_broken(grid, grid / "b" / name)


def test_a_key_that_an_older_record_lacks_is_named(grid: Path) -> None:
    older_record(grid / "b" / "record.json")
    with pytest.raises(BrokenFolderError, match=r"b/record.json is not whole \(it lacks is_reference"):
        find_reference(RunFolder(grid / "b"))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_picture_is_none_and_its_run_no_reference(grid: Path, damage: str) -> None:
    for name in ("b", "ref"):
        DAMAGES[damage](grid / name / "images" / "01.png")
    broken = RunFolder(grid / "b")
    assert [broken.has_image(prompt) for prompt in (0, 1, 2)] == [True, False, False]
    with pytest.raises(BrokenFolderError, match=r"b/images/01.png is not a whole picture"):
        score_run(broken, MetricsConfig(), Share.all())
    assert find_reference(RunFolder(grid / "a")) is None


def test_rows_of_a_run_that_goes_on_may_end_in_half_a_line_and_in_nothing_else(tmp_path: Path) -> None:
    folder = finished(tmp_path / "a")
    folder.update_record(status="running")
    steps = folder.path / "steps.csv"
    rows, text = folder.read_steps(), steps.read_text()
    steps.write_text(text + "0,2,0,ste")
    assert folder.read_steps() == rows
    for damaged in (b"", b"rank,pro", bytes(len(text)), text.replace("steady", "steady,").encode()):
        steps.write_bytes(damaged)
        assert Snapshot(folder).record["status"] == "broken"


def test_whoever_reads_a_snapshot_sees_what_was_there(grid: Path) -> None:
    snapshot = Snapshot(RunFolder(grid / "a"))
    RunFolder(grid / "a").update_record(status="running")
    assert snapshot.record["status"] == "done"
