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


def paired_double_loop(x: np.ndarray, y: np.ndarray) -> float:
    def k(a: np.ndarray, b: np.ndarray) -> float:
        return float((sum(a * b) / len(a) + 1) ** 3)

    n = len(x)
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    return sum(k(x[i], x[j]) + k(y[i], y[j]) - k(x[i], y[j]) - k(x[j], y[i]) for i, j in pairs) / (n * (n - 1))


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


def pairs(number: int, size: int, apart: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features of a reference and of a method that moves every picture a little, each in a direction of its own."""
    random = np.random.default_rng(seed)
    reference = random.normal(size=(number, size)) + 0.5
    return reference + apart * random.normal(size=reference.shape), reference


def test_pairs_agree_with_the_double_loop_that_leaves_them_out() -> None:
    sets = pairs(7, 5, 0.3)
    assert kernel_distance(*sets, paired=True).value == pytest.approx(paired_double_loop(*sets), rel=1e-10)


def test_two_pairs_by_hand() -> None:
    """{0, 1} and {0, 2}, one feature: k(0, 1) + k(0, 2) - k(0, 2) - k(1, 0) = 1 + 1 - 1 - 1 = 0; {0, 1} and {1, 2}:
    k(0, 1) + k(1, 2) - k(0, 2) - k(1, 1) = 1 + 27 - 1 - 8 = 19."""
    first = np.array([[0.0], [1.0]])
    assert kernel_distance(first, np.array([[0.0], [2.0]]), paired=True).value == pytest.approx(0, abs=1e-12)
    assert kernel_distance(first, np.array([[1.0], [2.0]]), paired=True).value == pytest.approx(19, rel=1e-12)


def test_the_error_of_pairs_leaves_whole_pairs_out() -> None:
    x, y = pairs(8, 5, 0.4)
    left_out = [paired_double_loop(np.delete(x, i, 0), np.delete(y, i, 0)) for i in range(8)]
    expected = (7 * float(np.var(left_out))) ** 0.5
    assert kernel_distance(x, y, paired=True).standard_error == pytest.approx(expected, rel=1e-9)
    assert kernel_distance(x[:2], y[:2], paired=True).standard_error is None


@pytest.mark.parametrize(("number", "size"), [(2, 3), (16, 64), (100, 192), (1500, 16)])
def test_equal_sets_of_pairs_have_distance_exactly_zero(number: int, size: int) -> None:
    reference = 40 * pairs(number, size, 0)[1]
    distance = kernel_distance(reference.copy(), reference, paired=True)
    assert distance.value == 0
    assert distance.standard_error in (0, None)


def test_the_nearer_method_has_the_smaller_distance() -> None:
    """16 pictures, every feature moved by 0.01 or by 0.2: with the pairs counted, the reference against itself lies
    5 errors below 0, and below both methods."""
    picture, reference = pairs(16, 64, 0.05)
    counted = kernel_distance(reference, reference)
    assert counted.standard_error is not None
    assert counted.value < -5 * counted.standard_error
    itself, near, far = (kernel_distance(x, reference, paired=True) for x in (reference, picture + 0.01, picture + 0.2))
    assert itself.value == 0
    assert far.standard_error is not None
    assert abs(near.value) < 2 * far.standard_error < far.value


def test_pairs_of_one_distribution_are_unbiased_whatever_they_share() -> None:
    """x = a + b and y = a + c: alike in pairs, of one distribution: mean 0 within 4 standard errors over 300 sets."""
    random, values = np.random.default_rng(0), []
    for _ in range(300):
        shared, own, other = random.normal(size=(3, 8, 16))
        values.append(kernel_distance(shared + 0.3 * own, shared + 0.3 * other, paired=True).value)
    assert abs(np.mean(values)) < 4 * np.std(values) / 300**0.5
