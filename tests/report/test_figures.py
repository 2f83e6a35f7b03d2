"""Figures: the value, how far it is from the reference, and the best of those that may be compared."""

from __future__ import annotations

from pathlib import Path

from otil_exp.report.collect import collect
from otil_exp.report.columns import columns
from otil_exp.report.figures import figures
from report.folders import make_grid, make_reference, make_run

TIME = "latency/step_ms"

ONE_PROMPT = {"index": 0, "text": "a red circle", "seed": 0}


def column(runs, key):
    return next(column for column in columns(runs) if column.key == key)


def shown(runs, key):
    return figures(runs, column(runs, key))


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
    two = make_run(tmp_path, "2", metrics={"latency/step_ms": 20.0}, gpus=["another"] * 4)
    three = make_run(tmp_path, "3", metrics={"latency/step_ms": 30.0})
    four = make_run(tmp_path, "4", metrics={"latency/step_ms": 35.0})
    found = shown(collect([one, two, three, four]), "latency/step_ms")
    assert [c.doubtful for c in found] == [True, True, False, False]
    assert [c.best for c in found] == [False, False, True, False]
    assert "all ranks shared one GPU" in found[0].title
    assert "another machine than the reference's, G" in found[1].title
    assert [c.delta for c in found] == ["", "", "1.33x", "1.14x"]


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
        "-0.50",
        "+4.00",
        "+1.25",
    ]


def test_a_metric_that_is_missing_says_why_and_one_that_nobody_has_is_no_column(tmp_path: Path) -> None:
    one = make_run(tmp_path, "1", metrics={"ref/psnr": {"value": None, "missing": "no reference"}})
    two = make_run(tmp_path, "2", metrics={"ref/psnr": 30.0, "fid/gt": {"value": None}})
    runs = collect([one, two])
    assert [c.key for c in columns(runs)] == ["ref/psnr"]
    assert [(c.text, c.title) for c in shown(runs, "ref/psnr")] == [("-", "no reference"), ("30.00", "2 pictures")]


def test_the_reference_on_fewer_gpus_of_the_same_model_is_the_same_machine(tmp_path: Path) -> None:
    make_reference(tmp_path, gpus=["H200"] * 8)
    [figure] = shown(collect([make_run(tmp_path, "1", gpus=["H200"] * 4, metrics={"latency/step_ms": 20.0})]), TIME)
    assert (figure.delta, figure.doubtful) == ("2.00x", False)


def test_a_time_is_set_against_the_reference_of_its_own_engine(tmp_path: Path) -> None:
    reference = make_reference(tmp_path)
    compiled = make_reference(tmp_path, "0ref2", engine_runs_as="compiled", metrics={"latency/step_ms": 10.0})
    fast = make_run(tmp_path, "1", engine_runs_as="compiled", metrics={"latency/step_ms": 5.0})
    assert [f.delta for f in shown(collect([reference, compiled, fast]), TIME)] == ["", "", "2.00x"]
    [alone] = shown(collect([fast]), TIME)
    assert (alone.delta, alone.doubtful) == ("", True)
    assert "another engine than the reference's, eager" in alone.title


def test_without_a_reference_another_gpu_s_time_is_not_the_best(tmp_path: Path) -> None:
    machines = {"a": ["H200"] * 4, "b": ["L40S"] * 4, "c": ["L40S"] * 4}
    times = {"a": 10.0, "b": 30.0, "c": 20.0}
    runs = [make_run(tmp_path, n, gpus=machines[n], metrics={"latency/step_ms": times[n]}) for n in "abc"]
    assert [f.best for f in shown(collect(runs), TIME)] == [False, False, True]


def test_a_run_with_fewer_prompts_does_not_win(tmp_path: Path) -> None:
    few = make_run(tmp_path, "a", metrics={"ref/psnr": {"value": 40.0, "n": 1}}, prompts=[ONE_PROMPT])
    others = [make_run(tmp_path, n, metrics={"ref/psnr": {"value": v, "n": 2}}) for n, v in (("b", 30.0), ("c", 31.0))]
    assert [f.best for f in shown(collect([few, *others]), "ref/psnr")] == [False, False, True]


def test_sets_of_different_n_have_no_best_in_common(tmp_path: Path) -> None:
    sets = {"a": (10.0, 100), "b": (12.0, 5000), "c": (13.0, 5000)}
    runs = [make_run(tmp_path, k, metrics={"fid/gt": {"value": v, "n": n}}) for k, (v, n) in sets.items()]
    assert [f.best for f in shown(collect(runs), "fid/gt")] == [False, True, False]


def test_a_score_has_its_error_and_n_and_a_time_its_spread(tmp_path: Path) -> None:
    psnr = {"value": 31.416, "standard_error": 1.268, "n": 10}
    time = {"value": 20.0, "n": 40, "median": 19.5, "p5": 18.0, "p95": 25.25}
    runs = collect([make_run(tmp_path, "1", metrics={"ref/psnr": psnr, "latency/step_ms": time})])
    [figure] = shown(runs, "ref/psnr")
    assert (figure.with_error, figure.n) == ("31.42 ±1.27", 10)
    [figure] = shown(runs, TIME)
    assert (figure.with_error, figure.n) == ("20.0", None)
    assert figure.title == "40 steps; median 19.5, 5 % to 95 %: 18.0 to 25.2"


def test_what_prompts_do_not_tell_apart_is_marked_so(tmp_path: Path) -> None:
    scores = {"a": [30, 40, 35, 25], "b": [29, 41, 34.9, 25], "c": [29, 39, 34, 24]}
    runs = []
    for name, values in scores.items():
        per_image = {f"{i:02d}": value for i, value in enumerate(values)}
        entry = {"value": sum(values) / 4, "n": 4, "standard_error": 3.2, "per_image": per_image}
        runs.append(make_run(tmp_path, name, metrics={"ref/psnr": entry}))
    # a 32.5 and b 32.475: differences 1, -1, 0.1, 0; c is 1 below a for every prompt.
    assert [(f.best, f.tied) for f in shown(collect(runs), "ref/psnr")] == [
        (True, False),
        (False, True),
        (False, False),
    ]
