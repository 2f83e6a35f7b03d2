"""`otil-report` as typed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from otil_exp.report.collect import find_folders
from otil_exp.report.command import main
from otil_exp.report.table import summary
from report.folders import make_grid, make_run


def test_the_page_lies_in_the_grid_s_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_grid(tmp_path)
    assert main([str(tmp_path)]) == 0
    assert "3 runs" in capsys.readouterr().out
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_run_s_own_folder_is_left_alone(tmp_path: Path) -> None:
    make_grid(tmp_path)
    before = sorted((tmp_path / "1otil").rglob("*"))
    assert main([str(tmp_path / "1otil")]) == 0
    assert sorted((tmp_path / "1otil").rglob("*")) == before
    assert (tmp_path / "report.html").exists()


def test_the_table_is_the_one_that_ends_a_grid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_grid(tmp_path)
    make_run(tmp_path, "3", status="failed", failed_rank=1, error="ValueError: no")
    assert main([str(tmp_path), "--table"]) == 0
    shown = capsys.readouterr().out
    Console().print(summary(find_folders([tmp_path])))
    assert shown == capsys.readouterr().out
    assert "failed on rank 1" in shown
    assert not (tmp_path / "report.html").exists()


def test_a_result_page_names_machine_versions_commit_and_failures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_grid(tmp_path)
    make_run(tmp_path, "3", status="failed", failed_rank=1, error="a | b <i>", method="guide")
    assert main([str(tmp_path), "--markdown"]) == 0
    text = capsys.readouterr().out
    for line in (
        "# handmade",
        "- commit: 0123456789",
        "- machine: 4 x G",
        "- measured: 2026-01-01",
        "| 4 | otil 4 split | done | **20.0** 2.00x | 30.00 | 0.2 | 8.00 |",
        "- 3 guide 4 split: rank 1: a \\| b &lt;i&gt;",
    ):
        assert line in text


def test_a_wrong_folder_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nothing")]) == 1
    assert "no run folder in" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong", [["--thumbnail", "0"], ["--prompts", "many"], ["--table", "--markdown"], ["--table", "-o", "x"]]
)
def test_wrong_options_are_refused(tmp_path: Path, wrong: list[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path), *wrong])


def test_a_report_does_not_wait_for_torch() -> None:
    code = "import sys, otil_exp.report.command; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
