"""Paired differences, worked out by hand."""

from __future__ import annotations

from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from otil_exp.report.collect import Run, collect
from otil_exp.report.columns import PSNR
from otil_exp.report.figures import figures
from otil_exp.report.paired import NEEDED_IN_WORDS, Difference, against_best, difference, needed_errors
from report.folders import make_run


def runs_of(tmp_path: Path, **scores: dict[str, float | list[float]]) -> list[Run]:
    def entry(per_image: dict[str, float | list[float]]) -> dict[str, object]:
        means = [v if isinstance(v, float) else sum(v) / len(v) for v in per_image.values()]
        return {"value": sum(means) / len(means), "n": len(means), "per_image": per_image}

    return collect([make_run(tmp_path, name, metrics={"ref/psnr": entry(s)}) for name, s in scores.items()])


def test_a_difference_is_the_mean_of_differences_with_their_error(tmp_path: Path) -> None:
    one, other = runs_of(tmp_path, a={"00": 30.0, "01": 40.0, "02": 50.0}, b={"00": 29.0, "01": 38.0, "02": 47.0})
    found = difference(one, other, "ref/psnr")
    assert found is not None
    # 1, 2, 3: mean 2, deviation 1, error 1 / sqrt 3.
    assert (found.mean, found.n) == (2.0, 3)
    assert found.error == pytest.approx(1 / sqrt(3))
    assert not found.told_apart  # 3.46 errors, and three prompts need 4.3


@pytest.mark.parametrize("n", [2, 3, 5, 10, 11, 12, 20, 60, 1000])
def test_so_many_errors_are_needed_as_student_says(n: int) -> None:
    assert needed_errors(n) == pytest.approx(stats.t.ppf(0.975, n - 1), abs=0.006)


def test_the_words_for_it_are_its_figures() -> None:
    in_words = "4.3 standard errors of the paired difference at 3 prompts, 2.3 at 10, 2 at 60"
    assert [f"{needed_errors(n):.1f}" for n in (3, 10, 60)] == ["4.3", "2.3", "2.0"]
    assert in_words in NEEDED_IN_WORDS


def test_chance_tells_methods_apart_in_five_of_a_hundred_cases() -> None:
    """Two methods that do not differ, over 3 prompts: two standard errors would part them in 18 of a hundred."""
    apart = np.random.default_rng(0).normal(size=(4000, 3))
    errors = apart.std(axis=1, ddof=1) / sqrt(3)
    pairs = zip(apart.mean(axis=1), errors, strict=True)
    found = [Difference(mean=mean, error=error, n=3).told_apart for mean, error in pairs]
    assert 0.04 < np.mean(found) < 0.06
    assert np.mean(np.abs(apart.mean(axis=1)) >= 2 * errors) > 0.16


def test_seams_of_a_picture_count_once_and_few_prompts_say_nothing(tmp_path: Path) -> None:
    one, other, two = runs_of(
        tmp_path,
        a={"00": [1.0, 3.0], "01": 4.0, "02": 4.0},
        b={"00": 2.0, "01": 4.0, "02": 4.0},
        c={"00": 1.0, "01": 1.0},
    )
    same = difference(one, other, "ref/psnr")
    assert same is not None
    assert (same.mean, same.error, same.told_apart) == (0, 0, False)
    assert difference(one, two, "ref/psnr") is None


def test_everyone_is_set_against_the_best_it_can_be_compared_with(tmp_path: Path) -> None:
    low, high = {"00": 1.0, "01": 2.0, "02": 3.0}, {"00": 2.0, "01": 3.0, "02": 4.0}
    a, b = runs_of(tmp_path, a=low, b=high)
    found = against_best([a, b], PSNR)
    assert found[b.number] is None
    assert found[a.number] is not None
    assert found[a.number].mean == -1
    assert against_best([a], PSNR) == {}


@pytest.mark.parametrize("prompts", [1, 2])
def test_a_best_of_few_prompts_is_not_told_apart_from_the_others(tmp_path: Path, prompts: int) -> None:
    low, high = ({f"{i:02d}": start + i for i in range(prompts)} for start in (10.0, 30.0))
    best, other = figures(runs_of(tmp_path, a=high, b=low), PSNR)
    assert (best.best, best.tied) == (True, False)
    assert (other.best, other.tied) == (False, True)
