"""The phases of runs on the page and in CSV."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from otil_exp.report.collect import collect, find_folders
from otil_exp.report.csv_table import csv_table
from otil_exp.report.page import render
from otil_exp.report.walltime import _text, wall_times
from report.folders import make_run

SLOW = {"starting ranks": 20.0, "loading weights": 30.0, "compiling": 100.0, "pictures": 40.0, "scoring": 10.0}
QUICK = {"starting ranks": 5.0, "loading weights": 15.0, "preparing": 0.0, "pictures": 30.0}


def test_a_bar_is_as_long_as_its_part_of_the_longest_run(tmp_path: Path) -> None:
    """200 s and 50 s: a quarter of the scale, of which 30 s of pictures are 15 per cent."""
    make_run(tmp_path, "1", phases=SLOW)
    make_run(tmp_path, "2", phases=QUICK)
    make_run(tmp_path, "3", status="running")
    times = wall_times(collect(find_folders([tmp_path])))
    assert times is not None
    assert times.names == ["starting ranks", "loading weights", "compiling", "pictures", "scoring", "preparing"]
    assert [row.run.number for row in times.rows] == [1, 2]
    slow, quick = times.rows
    assert [part and part.share for part in slow.parts] == [10, 15, 50, 20, 5, None]
    assert [part and part.share for part in quick.parts] == [2.5, 7.5, None, 15, None, 0]
    assert (slow.total, quick.total) == ("3:20", "50.0 s")


def test_it_is_on_the_page_and_in_csv(tmp_path: Path) -> None:
    make_run(tmp_path, "1", phases=SLOW)
    make_run(tmp_path, "2", phases=QUICK)
    runs = collect(find_folders([tmp_path]))
    html = render(runs, tmp_path, 64)
    assert html.count('<td class="bar"') == 2
    assert "width: 50.00%" in html
    assert "compiling: 1:40" in html
    first, second = csv.DictReader(csv_table(runs).splitlines())
    assert (first["phases/compiling"], second["phases/compiling"]) == ("100.0", "")
    assert (first["phases/starting ranks"], second["phases/preparing"]) == ("20.0", "0.0")


def test_a_report_of_runs_without_phases_has_no_such_part(tmp_path: Path) -> None:
    make_run(tmp_path, "1")
    runs = collect(find_folders([tmp_path]))
    assert 'id="walltime"' not in render(runs, tmp_path, 64)
    assert "phases" not in csv_table(runs)


@pytest.mark.parametrize(("seconds", "text"), [(0, "0.0 s"), (59.94, "59.9 s"), (100, "1:40"), (7503, "2:05:03")])
def test_times_are_read_at_a_glance(seconds: float, text: str) -> None:
    assert _text(seconds) == text
