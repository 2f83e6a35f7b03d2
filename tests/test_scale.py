"""benchmarks/scale.md, small: a run of many pictures is resumed, scored with what ships, interrupted, and reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import scale, scale_grid
from otil_exp.run_folder.folder import RunFolder


def test_a_run_of_many_pictures_is_resumed_scored_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scale_grid, "SIDE", 128)
    grid = tmp_path / "grid"
    for command in ("make", "resume", "score", "report"):
        scale.main([command, str(grid), "--cells", "2", "--pictures", "60", "--scored", "4"])
    said = capsys.readouterr().out
    assert "60 pictures scored for 60: 0 twice" in said
    scored = RunFolder(grid / "01distrifusion")
    for key in ("ref/psnr", "ref/effnet_lite0_5stage", "ref/step_levels", "frechet_effnet_lite0/orig"):
        assert scored.metrics[key]["n"] == 60
    assert len(scored.read_steps()) == 60 * 2 * scale_grid.STEPS
    page = (grid / "report.html").read_text(encoding="utf-8")
    assert page.count('class="own"') == 2 * 60
