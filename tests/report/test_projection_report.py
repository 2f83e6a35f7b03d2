"""Projections in reports: seconds worked out by hand, the fastest by link and quality, and what is said where."""

from __future__ import annotations

from pathlib import Path

import pytest

from otil_exp.links import Curve, Links, write_links
from otil_exp.report.collect import collect, find_folders
from otil_exp.report.command import main
from otil_exp.report.projection import answers, project
from otil_exp.report.projection_tables import TITLE, section
from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.messages import MessageRow
from otil_exp.run_folder.steps import StepRow
from report.folders import make_reference, make_run

TOPOLOGY = {"name": "2gpu_nosplit", "world_size": 2, "split_batch": False}
MB = 1_000_000


def links(name: str, bytes_per_s: float) -> Links:
    points = ((0, 0.0), (MB, MB / bytes_per_s))
    return Links(
        name=name, source="by hand", date="2026-01-01", measured=False, curves=(Curve("all_gather", 2, points),)
    )


FAST, SLOW = links("fast", 1e9), links("slow", 1e8)
"""1 MB takes 1 and 10 ms."""


def steps(folder: RunFolder, ms: float, world_size: int = 2) -> None:
    """Two prompts of one warm-up step of 20 ms and two steady ones; rank 1's times do not count."""
    folder.write_steps(
        [
            StepRow(rank, prompt, step, "steady" if step else "warmup", (ms if step else 20.0) + 100 * rank, 0, 0)
            for rank in range(world_size)
            for prompt in range(2)
            for step in range(3)
        ]
    )


def gathers(folder: RunFolder, warmup: int, steady: int) -> None:
    """Messages of 1 MB that are waited for, in a step of each kind."""
    counts = {"warmup": warmup, "steady": steady}
    folder.write_messages([MessageRow(kind, "all_gather", 2, MB, True, n) for kind, n in counts.items() if n])


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    """A reference of 20 ms a step; chatty: 12 ms, 4 MB in each; quiet: 15 ms, 4 MB in warm-up alone, and worse."""
    steps(make_reference(tmp_path), 20.0, world_size=1)
    chatty = make_run(tmp_path, "1chatty", method="full_sync", topology=TOPOLOGY, metrics={"ref/psnr": 40.0})
    steps(chatty, 12.0)
    gathers(chatty, 4, 4)
    quiet = make_run(tmp_path, "2quiet", topology=TOPOLOGY, metrics={"ref/psnr": 22.0})
    steps(quiet, 15.0)
    gathers(quiet, 4, 0)
    for folder, links_ in (("fast", FAST), ("slow", SLOW)):
        write_links(links_, tmp_path / f"{folder}.yaml")
    return tmp_path


def test_a_picture_on_another_link_is_its_steps_there(grid: Path) -> None:
    """On slow, 4 MB take 40 ms instead of 4: 36 more in 3 steps of chatty, in one of quiet. The first picture of a run
    that was not warmed up does not count."""
    found = {one.run.method: one for one in project(collect(find_folders([grid])), [FAST, SLOW], FAST)}
    assert found["reference"].seconds == pytest.approx((0.060, 0.060))
    assert found["full_sync"].measured_s == pytest.approx(0.044)
    assert found["full_sync"].seconds == pytest.approx((0.044, 0.152))
    assert found["otil"].seconds == pytest.approx((0.050, 0.086))


def test_the_fastest_depends_on_link_and_quality(grid: Path) -> None:
    found = answers(project(collect(find_folders([grid])), [FAST, SLOW], FAST), [FAST, SLOW])
    said = [(one.links.name, one.bound_db, one.fastest.method, round(one.margin, 2)) for one in found]
    assert said == [
        ("fast", None, "full_sync", 1.14),
        ("fast", 25.0, "full_sync", 1.36),
        ("fast", 45.0, "reference", float("inf")),
        ("slow", None, "reference", 1.43),
        ("slow", 25.0, "reference", 2.53),
        ("slow", 45.0, "reference", float("inf")),
    ]


def test_what_cannot_be_projected_says_why(grid: Path) -> None:
    (grid / "1chatty" / "messages.csv").unlink()
    steps(make_run(grid, "3cpu", method="guide", topology=TOPOLOGY, times_meaningless="all ranks shared one CPU"), 5.0)
    make_run(grid, "4failed", method="balanced", topology=TOPOLOGY, status="failed", error="x", failed_rank=1)
    gathers(RunFolder(grid / "2quiet"), 40, 0)
    reasons = {one.run.method: one.reason for one in project(collect(find_folders([grid])), [SLOW], FAST)}
    assert reasons["reference"] == ""
    assert "messages.csv is not there" in reasons["full_sync"]
    assert "mean nothing: all ranks shared one CPU" in reasons["guide"]
    assert reasons["balanced"] == "it is not finished"
    assert "other links" in reasons["otil"]


def test_the_fastest_has_a_table_where_something_is_projected(grid: Path) -> None:
    def titles() -> list[str]:
        return [table.title for table in section(collect(find_folders([grid])), [SLOW], FAST).tables]

    assert titles() == ["seconds a picture", "the fastest method by link and quality"]
    for run in ("1chatty", "2quiet"):
        (grid / run / "messages.csv").unlink()
    assert titles() == ["seconds a picture"]


def test_every_form_marks_a_projection(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = [str(grid), "--measured-on", str(grid / "fast.yaml"), "--links", str(grid / "slow.yaml")]
    assert main([*asked, "--markdown"]) == 0
    page = capsys.readouterr().out
    assert f"## {TITLE}" in page
    assert "Projected, not measured" in page
    assert "| 0.152 |" in page
    assert main([*asked, "--table"]) == 0
    assert "Projected, not measured" in capsys.readouterr().out
    assert main([*asked, "-o", str(grid / "report.html")]) == 0
    html = (grid / "report.html").read_text()
    assert f"<h2>{TITLE}</h2>" in html
    assert "0.152" in html


def test_without_links_a_report_is_as_it_was(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(grid), "--markdown"]) == 0
    assert "rojecti" not in capsys.readouterr().out


def test_what_is_missing_is_asked_for(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(grid), "--links", "pcie4_peers"]) == 1
    assert "--measured-on FILE_OR_NAME" in capsys.readouterr().err
    assert main([str(grid), "--links", "pcie9", "--measured-on", "nvlink_h200"]) == 1
    assert "pcie4_peers" in capsys.readouterr().err
    assert main([str(grid), "--table", "--measured-on", "nvlink_h200"]) == 1
    assert "say to which links, with --links" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([str(grid), "--csv", "--links", "pcie4_peers"])
    assert "measured alone" in capsys.readouterr().err
