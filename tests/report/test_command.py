"""`otil-report` as typed."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from otil_exp.report.collect import collect, find_folders
from otil_exp.report.command import main
from otil_exp.report.csv_table import csv_table
from otil_exp.report.latex import escape, latex_table
from otil_exp.report.markdown import result_page
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
        "- machine: G",
        "- seeds: 0 to 1",
        "- engine: eager",
        "- measured: 2026-01-01",
        "| # | run | status | ms/step ↓ | PSNR dB ↑ | LPIPS ↓ | seam, levels ↓ |",
        "| 4 | otil 4gpu\\_split | done | **20.0** 2.00x | 30.00 ±1.50 n=2 | 0.2000 n=2 | 8.00 n=2 |",
        "±: standard error of the mean over the n pictures",
        "- 3 guide 4gpu\\_split: rank 1: a \\| b &lt;i&gt;",
    ):
        assert line in text


def test_a_result_page_of_timed_runs_has_their_steps_by_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_kind = {"latency/warmup_ms": 33.4, "latency/steady_ms": 28.3, "latency/refresh_ms": 33.0}
    metrics = {key: {"value": value, "n": 9} for key, value in ({"latency/step_ms": 28.8} | by_kind).items()}
    for mode, shown in (("generate", False), ("benchmark", True)):
        make_run(tmp_path / mode, "1", config={"mode": mode}, metrics=metrics)
        assert main([str(tmp_path / mode), "--markdown"]) == 0
        table = capsys.readouterr().out
        assert ("ms/warm-up step ↓ | ms/steady step ↓ | ms/refresh step ↓" in table) == shown
        assert ("33.40" in table) == shown


def test_a_result_page_has_the_command_and_paired_differences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, values in (("a", (30.0, 31.0, 32.0)), ("b", (29.0, 29.0, 29.0))):
        per_image = {f"{i:02d}": value for i, value in enumerate(values)}
        psnr = {"value": sum(values) / 3, "n": 3, "per_image": per_image}
        make_run(tmp_path, name, metrics={"ref/psnr": psnr}, command="otil-exp -m preset=a,b", method=name)
    assert main([str(tmp_path), "--markdown"]) == 0
    text = capsys.readouterr().out
    assert "```\notil-exp -m preset=a,b\n```" in text
    # -1, -2, -3: mean -2, deviation 1, error 0.577.
    assert "| 2 | b 4gpu\\_split | ≈ -2.00 ±0.58 n=3 |" in text
    assert "| 1 | a 4gpu\\_split | **best** |" in text


def test_a_result_page_has_the_spread_of_times_that_mean_something(tmp_path: Path) -> None:
    spread = {"value": 20.0, "n": 8, "median": 19.04, "p5": 18.0, "p95": 30.0}
    make_run(tmp_path, "a", method="a", metrics={"latency/step_ms": spread})
    make_run(
        tmp_path, "b", method="b", metrics={"latency/step_ms": spread}, times_meaningless="all ranks shared one CPU"
    )
    lines = result_page(collect(find_folders([tmp_path]))).splitlines()
    start = lines.index("## Spread of times")
    assert lines[start + 2 : start + 6] == [
        "| # | run | time | mean | median | 5 % | 95 % |",
        "| --: | --- | --- | --: | --: | --: | --: |",
        "| 1 | a 4gpu\\_split | ms/step | 20.0 | 19.0 | 18.0 | 30.0 |",
        "",
    ]


def test_csv_has_every_figure_unrounded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_grid(tmp_path)
    make_run(
        tmp_path, "3", method="gu,ide", metrics={"ref/psnr": {"value": 30.123456789, "standard_error": 0.5, "n": 2}}
    )
    assert main([str(tmp_path), "--csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert len(rows) == 4
    [row] = [row for row in rows if row["method"] == "gu,ide"]
    assert (row["ref/psnr"], row["ref/psnr.standard_error"], row["ref/psnr.n"]) == ("30.123456789", "0.5", "2")
    assert (row["topology"], row["latency/step_ms"], row["status"]) == ("4gpu_split", "", "done")


def test_latex_is_a_table_that_latex_reads(tmp_path: Path) -> None:
    make_grid(tmp_path)
    make_run(tmp_path, "3", method="a_b & c%", metrics={"ref/psnr": 31.0})
    assert main([str(tmp_path), "--latex", "-o", str(tmp_path / "table.tex")]) == 0
    text = (tmp_path / "table.tex").read_text(encoding="utf-8")
    assert (
        r"run & ms/step $\downarrow$ & PSNR dB $\uparrow$ & LPIPS $\downarrow$ & seam, levels $\downarrow$ \\" in text
    )
    assert r"otil 4gpu\_split & \textbf{20.0} {\scriptsize 2.00x} & 30.00 {\scriptsize $\pm$ 1.50} &" in text
    assert r"a\_b \& c\% 4gpu\_split & - & 31.00" in text
    body = [line for line in text.splitlines() if not line.startswith("%")]
    assert "\n".join(body).isascii()
    assert {line.count("&") - line.count(r"\&") for line in body if line.endswith(r"\\")} == {4}


def test_latex_says_n_once_where_it_is_one_and_else_in_every_cell(tmp_path: Path) -> None:
    for name, n in (("a", 10), ("b", 3)):
        make_run(tmp_path, name, method=name, metrics={"ref/psnr": {"value": 30.0, "n": n, "standard_error": 1.0}})
    runs = collect(find_folders([tmp_path]))
    text = latex_table(runs)
    assert r"30.00 {\scriptsize $\pm$ 1.00} {\scriptsize n = 10} \\" in text
    assert r"30.00 {\scriptsize $\pm$ 1.00} {\scriptsize n = 3} \\" in text
    assert "n: pictures.}" in text
    assert "n = 10 pictures.}" in latex_table(runs[:1])


def test_csv_has_what_stands_beside_a_value_a_figure_a_column(tmp_path: Path) -> None:
    truth = {"path": "/data/coco, 2017", "count": 5000, "digest": "1a2b"}
    spread = {"value": 20.0, "n": 8, "median": 19.0, "p5": 18.0, "p95": 30.0}
    fid = {"value": 9.5, "n": 100, "n_reference": 5000, "model": "inception", "ground_truth": truth}
    make_run(tmp_path, "1", metrics={"latency/step_ms": spread, "fid/gt": fid, "reference/step_z": 0.25})
    [row] = csv.DictReader(csv_table(collect(find_folders([tmp_path]))).splitlines())
    assert {name: row[f"latency/step_ms.{name}"] for name in ("median", "p5", "p95", "n")} == {
        "median": "19.0",
        "p5": "18.0",
        "p95": "30.0",
        "n": "8",
    }
    assert row["fid/gt.n_reference"] == "5000"
    assert [row[f"fid/gt.ground_truth.{part}"] for part in ("path", "count", "digest")] == [
        "/data/coco, 2017",
        "5000",
        "1a2b",
    ]
    assert row["reference/step_z"] == "0.25"


@pytest.mark.parametrize("output", ["page", "file/page.html"])
def test_a_place_that_cannot_be_written_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    make_run(tmp_path / "grid", "1")
    (tmp_path / "page").mkdir()
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path / "grid"), "-o", str(tmp_path / output)])
    said = f"{ended.value} {capsys.readouterr().err}"
    assert "is a folder: name a file in it" in said or "cannot be written" in said
    assert str(tmp_path / output) in said


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("a_b & c% #1 $x$ {y}", r"a\_b \& c\% \#1 \$x\$ \{y\}"),
        ("~z ^w \\v", r"\textasciitilde{}z \textasciicircum{}w \textbackslash{}v"),
        ('"q" <i> | `t`', r"''q'' \textless{}i\textgreater{} \textbar{} \textasciigrave{}t\textasciigrave{}"),
        ("--- a-b", "-{}-{}- a-b"),
        ("ü é ß Ş ﬁ", "ü é ß S f"),
        ("Δ 日 \x07 “x”", "? ? ? ``x''"),
    ],
)
def test_latex_gets_no_character_that_it_reads_otherwise_or_lacks(text: str, latex: str) -> None:
    """As pdfLaTeX of TeX Live 2022 set them without a package and an error."""
    assert escape(text) == latex


def test_a_wrong_folder_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nothing")]) == 1
    assert "no run folder in" in capsys.readouterr().err


def test_a_folder_of_grids_is_answered_with_the_grids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Such as what output_dir= was."""
    make_run(tmp_path / "a", "1")
    make_run(tmp_path / "b", "1")
    assert main([str(tmp_path)]) == 1
    assert f"no run folder in {tmp_path}: name {tmp_path / 'a'} {tmp_path / 'b'}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong", [["--thumbnail", "0"], ["--prompts", "many"], ["--table", "--markdown"], ["--table", "-o", "x"]]
)
def test_wrong_options_are_refused(tmp_path: Path, wrong: list[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path), *wrong])


def test_a_report_does_not_wait_for_torch() -> None:
    code = "import sys, otil_exp.report.command; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
