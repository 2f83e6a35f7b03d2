"""The figures of papers as data: whole, of known keys, and typed as they are printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from otil_exp.choices import Scheduler
from otil_exp.metrics.registry import METRICS
from otil_exp.models.architecture import PUBLISHED
from otil_exp.published.tables import lines, read_published, shipped

ROOT = Path(__file__).parents[2]
PUBLISHED_FILE, LINES = shipped()


def test_every_figure_has_a_key_that_is_measured_or_explained() -> None:
    known = {metric.key for metric in METRICS} | set(PUBLISHED_FILE.others)
    assert {key for line in LINES for key in line.row.figures} <= known


def test_every_line_names_what_exists() -> None:
    presets = {path.stem for path in (ROOT / "conf" / "preset").glob("*.yaml")}
    for line in LINES:
        assert line.row.ours is None or line.row.ours in presets, line.title
        assert line.settings.model in PUBLISHED, line.title
        assert line.settings.scheduler is None or line.settings.scheduler in Scheduler.__members__, line.title
        assert line.row.figures, line.title


def test_every_paper_has_tables_and_every_table_rows() -> None:
    assert {table.paper for table in PUBLISHED_FILE.tables} == set(PUBLISHED_FILE.papers)
    assert all(table.rows for table in PUBLISHED_FILE.tables)


def test_speed_ups_are_those_of_the_printed_times() -> None:
    """A slip of the pen in a time or a ratio shows: printed ratios have one or two decimals."""
    checked = 0
    for table in PUBLISHED_FILE.tables:
        alone = [row.figures["latency/image_s"] for row in table.rows if row.gpus == 1]
        for row in table.rows if alone else []:
            if {"speedup", "latency/image_s"} <= row.figures.keys():
                assert row.figures["speedup"] == pytest.approx(alone[0] / row.figures["latency/image_s"], abs=0.09)
                checked += 1
    assert checked > 25


def test_a_line_has_its_table_s_settings_but_for_its_own() -> None:
    few = [line for line in LINES if line.table.name == "Fig. 8, few steps" and line.row.gpus == 8]
    assert [line.settings.warmup_steps for line in few] == [0, 1, 2]
    assert {(line.settings.num_inference_steps, line.settings.scheduler) for line in few} == {(10, "dpmpp")}
    assert [line.row.figures["latency/image_s"] for line in few] == [0.374, 0.388, 0.400]


def test_what_is_second_hand_says_so() -> None:
    assert [key for key, paper in PUBLISHED_FILE.papers.items() if paper.second_hand] == ["otil"]


@pytest.mark.parametrize(
    ("text", "said"),
    [("papers: {a: {titel: b}}", "titel"), ("tables: [{rows: [{figures: {psnr: high}}]}]", "high")],
)
def test_a_key_or_a_type_that_the_schema_has_not_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "p.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=said):
        list(lines(read_published(tmp_path / "p.yaml")))
