"""Kernel distance against double loops, and what a paper and pencil give."""

from __future__ import annotations

import numpy as np
import pytest
from thread_counts import on_threads

from otil_exp.metrics import kernel
from otil_exp.metrics.kernel import kernel_distance


def double_loop(x: np.ndarray, y: np.ndarray) -> float:
    def k(a: np.ndarray, b: np.ndarray) -> float:
        return float((sum(a * b) / len(a) + 1) ** 3)

    n, m = len(x), len(y)
    within_x = sum(k(x[i], x[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    within_y = sum(k(y[i], y[j]) for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    across = sum(k(a, b) for a in x for b in y) / (n * m)
    return within_x + within_y - 2 * across


def jackknife(x: np.ndarray, y: np.ndarray) -> float:
    def variance(values: list[float]) -> float:
        return (len(values) - 1) * float(np.var(values))

    without_x = [double_loop(np.delete(x, i, 0), y) for i in range(len(x))]
    without_y = [double_loop(x, np.delete(y, i, 0)) for i in range(len(y))]
    return (variance(without_x) + variance(without_y)) ** 0.5


@pytest.fixture
def sets() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.normal(size=(7, 5)), 1.4 * random.normal(size=(5, 5)) + 0.3


def test_one_feature_by_hand() -> None:
    """Sets {0, 1} and {1, 1}: kernel(0, 1) = 1, kernel(1, 1) = 8: 1 + 8 - 2 (1 + 1 + 8 + 8) / 4 = 0."""
    assert kernel_distance(np.array([[0.0], [1.0]]), np.array([[1.0], [1.0]])).value == pytest.approx(0, abs=1e-12)


def test_agrees_with_the_double_loop(sets: tuple[np.ndarray, np.ndarray]) -> None:
    assert kernel_distance(*sets).value == pytest.approx(double_loop(*sets), rel=1e-12)


def test_the_error_is_the_jackknife(sets: tuple[np.ndarray, np.ndarray]) -> None:
    assert kernel_distance(*sets).standard_error == pytest.approx(jackknife(*sets), rel=1e-9)


def test_two_pictures_have_a_value_but_no_error(sets: tuple[np.ndarray, np.ndarray]) -> None:
    features, reference = sets
    distance = kernel_distance(features[:2], reference)
    assert distance.value == pytest.approx(double_loop(features[:2], reference), rel=1e-12)
    assert distance.standard_error is None


def test_is_unbiased() -> None:
    """Over 300 pairs of sets of one distribution the mean is 0 within 4 standard errors; a Frechet distance is not."""
    random = np.random.default_rng(0)
    values = [kernel_distance(random.normal(size=(8, 16)), random.normal(size=(8, 16))).value for _ in range(300)]
    assert abs(np.mean(values)) < 4 * np.std(values) / 300**0.5


def test_is_the_same_every_time_in_any_order_and_from_shards(sets: tuple[np.ndarray, np.ndarray]) -> None:
    features, reference = sets
    distance = kernel_distance(features, reference)
    shards = [features[:4], features[4:4], features[4:6], features[6:]]
    assert kernel_distance(np.concatenate(shards), reference) == distance
    assert kernel_distance(features[::-1].copy(), reference).value == pytest.approx(distance.value, rel=1e-12)


def test_rows_at_a_time_give_the_same_value(
    sets: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = kernel_distance(*sets)
    monkeypatch.setattr(kernel, "ROWS", 3)
    assert kernel_distance(*sets) == pytest.approx(whole, rel=1e-12)


def test_the_number_of_threads_does_not_matter() -> None:
    random = np.random.default_rng(0)
    sets = random.normal(size=(300, 128)), random.normal(size=(200, 128))
    values = set()
    for threads in (1, 2, 4):
        with on_threads(threads):
            values.add(kernel_distance(*sets))
    assert len(values) == 1


def test_fewer_than_two_pictures_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 on each side"):
        kernel_distance(np.zeros((1, 4)), np.zeros((3, 4)))
