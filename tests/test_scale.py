"""benchmarks/scale.md, small: a run of many pictures is resumed, scored with what ships, interrupted, and reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import scale
from otil_exp.run_folder.folder import RunFolder


def test_a_run_of_many_pictures_is_resumed_scored_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scale, "SIDE", 128)
    grid = tmp_path / "grid"
    for command in ("make", "resume", "score", "report"):
        scale.main([command, str(grid), "--cells", "2", "--pictures", "60", "--scored", "4"])
    said = capsys.readouterr().out
    assert "4 pictures scored for 4: 0 twice" in said
    scored = RunFolder(grid / "01distrifusion")
    assert {key: scored.metrics[key]["n"] for key in ("ref/psnr", "ref/effnet_lite0_5stage", "ref/step_levels")} == {
        "ref/psnr": 4,
        "ref/effnet_lite0_5stage": 4,
        "ref/step_levels": 4,
    }
    assert scored.metrics["frechet_effnet_lite0/orig"]["n"] == 4
    assert len(scored.read_steps()) == 60 * 2 * scale.STEPS
    page = (grid / "report.html").read_text(encoding="utf-8")
    assert page.count('class="own"') == 2 * 60
