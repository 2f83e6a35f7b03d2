"""Cells: the value, how far it is from the reference, and the best of those that may be compared."""

from __future__ import annotations

from pathlib import Path

from otil_exp.report.collect import collect
from otil_exp.report.columns import cells, columns
from report.folders import make_grid, make_reference, make_run


def column(runs, key):
    return next(column for column in columns(runs) if column.key == key)


def shown(runs, key):
    return cells(runs, column(runs, key))


def test_a_time_is_set_against_the_reference_and_the_fastest_method_is_best(tmp_path: Path) -> None:
    runs = collect(make_grid(tmp_path))
    assert [(c.text, c.delta, c.best) for c in shown(runs, "latency/step_ms")] == [
        ("40.0", "", False),
        ("20.0", "2.00x", True),
        ("32.0", "1.25x", False),
    ]
    assert [c.best for c in shown(runs, "ref/psnr")] == [False, False, True]
    assert [c.best for c in shown(runs, "ref/lpips_alex")] == [False, False, True]


def test_times_that_mean_nothing_are_doubtful_and_never_best(tmp_path: Path) -> None:
    make_reference(tmp_path)
    one = make_run(tmp_path, "1", metrics={"latency/step_ms": 10.0}, times_meaningless="all ranks shared one GPU")
    two = make_run(tmp_path, "2", metrics={"latency/step_ms": 20.0}, gpus=["another"])
    three = make_run(tmp_path, "3", metrics={"latency/step_ms": 30.0})
    four = make_run(tmp_path, "4", metrics={"latency/step_ms": 35.0})
    found = shown(collect([one, two, three, four]), "latency/step_ms")
    assert [c.doubtful for c in found] == [True, True, False, False]
    assert [c.best for c in found] == [False, False, True, False]
    assert "all ranks shared one GPU" in found[0].title
    assert "another machine" in found[1].title


def test_the_best_is_sought_among_comparable_finished_runs(tmp_path: Path) -> None:
    values = {"a": 30.0, "b": 20.0, "c": 50.0, "d": 99.0}
    a, b = (make_run(tmp_path, name, metrics={"ref/psnr": values[name]}) for name in "ab")
    other = make_run(tmp_path, "c", metrics={"ref/psnr": values["c"]}, picture_key="other")
    failed = make_run(tmp_path, "d", metrics={"ref/psnr": values["d"]}, status="failed")
    assert [c.best for c in shown(collect([a, b, other, failed]), "ref/psnr")] == [True, False, False, False]


def test_scores_of_pictures_alone_are_set_against_the_reference_s_own(tmp_path: Path) -> None:
    make_reference(tmp_path, metrics={"text/clip_score": 31.5, "fid/gt": 20.0})
    seam = {"seam/step_levels": 1.5, "reference/step_levels": 0.25}
    runs = collect([make_run(tmp_path, "1", metrics={"text/clip_score": 31.0, "fid/gt": 24.0, **seam})])
    assert [shown(runs, key)[0].delta for key in ("text/clip_score", "fid/gt", "seam/step_levels")] == [
        "-0.5",
        "+4",
        "+1.25",
    ]


def test_a_metric_that_is_missing_says_why_and_one_that_nobody_has_is_no_column(tmp_path: Path) -> None:
    one = make_run(tmp_path, "1", metrics={"ref/psnr": {"value": None, "missing": "no reference"}})
    two = make_run(tmp_path, "2", metrics={"ref/psnr": 30.0, "fid/gt": {"value": None}})
    runs = collect([one, two])
    assert [c.key for c in columns(runs)] == ["ref/psnr"]
    assert [(c.text, c.title) for c in shown(runs, "ref/psnr")] == [("-", "no reference"), ("30.00", "n = 2")]
