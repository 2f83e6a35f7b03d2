"""Paired differences, worked out by hand."""

from __future__ import annotations

from math import sqrt
from pathlib import Path

import pytest

from otil_exp.report.collect import Run, collect
from otil_exp.report.columns import PSNR
from otil_exp.report.paired import against_best, difference
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
    assert found.told_apart


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
