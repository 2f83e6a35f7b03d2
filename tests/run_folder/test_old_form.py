"""Run folders of version 0.1 are recognised and said to be old."""

import json
from pathlib import Path

from otil_exp.run_folder.old_form import old_folders, old_form_sentence
from otil_exp.run_folder.signature import FORM


def record(grid: Path, name: str, **content: object) -> Path:
    (grid / name).mkdir(parents=True)
    (grid / name / "record.json").write_text(json.dumps(content))
    return grid / name


def test_a_finished_run_without_a_form_is_old(tmp_path: Path) -> None:
    old = record(tmp_path, "0a", status="done")
    record(tmp_path, "0b", status="done", form=FORM)
    record(tmp_path, "0c", status="failed")
    (tmp_path / "0d").mkdir()
    (tmp_path / "0d" / "record.json").write_text("{")
    assert old_folders(tmp_path) == [old]
    sentence = old_form_sentence(tmp_path)
    assert sentence is not None
    assert "1 finished run(s) of an older form, 0a among them" in sentence


def test_a_grid_of_todays_runs_needs_no_word(tmp_path: Path) -> None:
    record(tmp_path, "0b", status="done", form=FORM)
    assert old_form_sentence(tmp_path) is None
    assert old_form_sentence(tmp_path / "not there") is None
