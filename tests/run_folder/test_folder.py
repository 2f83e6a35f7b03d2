"""Files of a run appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.steps import StepRow


def test_a_new_folder_is_empty_and_not_finished(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "grid" / "abc")
    assert (folder.record, folder.metrics, folder.read_steps(), folder.finished) == ({}, {}, [], False)


def test_the_record_keeps_what_is_not_updated(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.update_record(status="running", started="t0")
    folder.update_record(status="done")
    assert folder.record == {"status": "done", "started": "t0"}
    assert folder.finished


def test_steps_survive_a_round_trip_and_have_the_columns_of_the_contract(tmp_path: Path) -> None:
    rows = [StepRow(rank=3, prompt=5, step=0, kind="warmup", ms=12.5, bytes_sent=1024, collectives=2)]
    RunFolder(tmp_path).write_steps(rows)
    header, line = (tmp_path / "steps.csv").read_text().splitlines()
    assert header == "rank,prompt,step,kind,ms,bytes_sent,collectives,repeat"
    assert line == "3,5,0,warmup,12.5000,1024,2,0"
    assert RunFolder(tmp_path).read_steps() == rows


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path)
    folder.write_image(0, Image.new("RGB", (4, 4), "red"))
    before = folder.image_path(0).read_bytes()

    def full_disk(self: Image.Image, path: Path, **_: object) -> None:
        path.write_bytes(b"half a pict")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", full_disk)
    with pytest.raises(OSError, match="No space left"):
        folder.write_image(0, Image.new("RGB", (4, 4), "blue"))
    assert [path.name for path in folder.images.iterdir()] == ["00.png"]
    assert folder.image_path(0).read_bytes() == before


def test_a_rejected_picture_is_kept_out_of_images(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.reject_image(7, Image.new("RGB", (4, 4))) == tmp_path / "rejected" / "07.png"
    assert not folder.image_path(7).exists()


def test_a_record_that_was_cut_names_the_file_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text('{"status": "do')
    with pytest.raises(ValueError, match=r"record.json is not whole .*: delete .* to run it again"):
        _ = RunFolder(tmp_path).record
