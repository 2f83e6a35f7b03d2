"""Frechet distance against values worked out on paper, and against the definition with 60 digits or in float64."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
from thread_counts import on_threads
from torchmetrics.image.fid import _compute_fid

from otil_exp.metrics.frechet import frechet_distance


def exact(features: np.ndarray, reference: np.ndarray) -> float:
    """The definition with 60 digits: covariances as sums over pictures, eigenvalues of S1 S2, their roots."""
    with mpmath.workdps(60):
        sets = [mpmath.matrix(values.tolist()) for values in (features, reference)]
        means = [[mpmath.fsum(x[:, j]) / x.rows for j in range(x.cols)] for x in sets]
        covariances = []
        for x, mean in zip(sets, means, strict=True):
            centred = mpmath.matrix([[x[i, j] - mean[j] for j in range(x.cols)] for i in range(x.rows)])
            covariances.append(centred.T * centred / (x.rows - 1))
        first, second = covariances
        values, _ = mpmath.eig(first * second)
        root = mpmath.fsum(mpmath.re(mpmath.sqrt(value)) for value in values)
        between = mpmath.fsum((a - b) ** 2 for a, b in zip(*means, strict=True))
        traces = mpmath.fsum(first[i, i] + second[i, i] for i in range(first.rows))
        return float(between + traces - 2 * root)


def definition(features: np.ndarray, reference: np.ndarray) -> float:
    """The definition in float64: tr sqrt(S1 S2) = tr sqrt(sqrt(S1) S2 sqrt(S1)), both roots of symmetric matrices."""
    first, second = np.cov(features.T), np.cov(reference.T)
    values, vectors = np.linalg.eigh(first)
    root = vectors @ np.diag(np.sqrt(values.clip(0))) @ vectors.T
    shared = np.sqrt(np.linalg.eigvalsh(root @ second @ root).clip(0)).sum()
    between = features.mean(0) - reference.mean(0)
    return float(between @ between + np.trace(first) + np.trace(second) - 2 * shared)


def two_sets(n: int, m: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Correlated features of unlike scales, the second set moved and stretched."""
    random = np.random.default_rng(seed)
    mix = random.normal(size=(d, d)) * np.geomspace(1, 0.01, d)
    return random.normal(size=(n, d)) @ mix, 1.3 * random.normal(size=(m, d)) @ mix + 0.2


def test_one_feature_by_hand() -> None:
    """Means 1 and 7, variances 2 and 8: 36 + (sqrt 2 - sqrt 8)^2."""
    assert frechet_distance(np.array([[0.0], [2.0]]), np.array([[5.0], [9.0]])) == pytest.approx(38, rel=1e-12)


def test_two_features_by_hand() -> None:
    """Covariances diag(2, 8) / 3 and diag(8, 2) / 3, means 5 apart: 25 + 2 (sqrt(8/3) - sqrt(2/3))^2 = 25 + 4/3."""
    flat = np.array([[1.0, 0], [-1, 0], [0, 2], [0, -2]])
    tall = np.array([[2.0, 0], [-2, 0], [0, 1], [0, -1]]) + np.array([3, 4])
    assert frechet_distance(flat, tall) == pytest.approx(25 + 4 / 3, rel=1e-12)


def test_two_pictures_whose_spreads_do_not_meet_by_hand() -> None:
    """Singular covariances diag(2, 0) and diag(0, 2), means (1, 0) and (0, 1): 2 + 2 + 2 - 0."""
    assert frechet_distance(np.array([[0.0, 0], [2, 0]]), np.array([[0.0, 0], [0, 2]])) == pytest.approx(6, rel=1e-12)


@pytest.mark.parametrize(("n", "m", "d"), [(12, 9, 4), (3, 4, 7), (3, 12, 7)], ids=["n>d", "n<d", "n<d<m"])
def test_agrees_with_sixty_digits(n: int, m: int, d: int) -> None:
    sets = two_sets(n, m, d)
    assert frechet_distance(*sets) == pytest.approx(exact(*sets), rel=1e-10)


@pytest.mark.parametrize(("n", "m", "d"), [(400, 300, 64), (64, 64, 64), (16, 16, 256), (2, 300, 64)])
def test_agrees_with_the_definition(n: int, m: int, d: int) -> None:
    sets = two_sets(n, m, d)
    assert frechet_distance(*sets) == pytest.approx(definition(*sets), rel=1e-6)


def test_agrees_with_torchmetrics_where_that_is_right() -> None:
    sets = two_sets(400, 300, 64)
    moments = [torch.from_numpy(moment) for x in sets for moment in (x.mean(0), np.cov(x.T))]
    assert frechet_distance(*sets) == pytest.approx(float(_compute_fid(*moments)), rel=1e-6)


@pytest.mark.parametrize("n", [2, 16, 200])
def test_a_set_is_at_distance_zero_from_itself(n: int) -> None:
    features, _ = two_sets(n, 2, 64)
    assert frechet_distance(features, features) == 0
    assert frechet_distance(features, features[::-1].copy()) == 0


def test_is_never_negative() -> None:
    random = np.random.default_rng(0)
    for n in (2, 5, 64, 100):
        features = random.normal(size=(n, 64)) + 100
        assert frechet_distance(features, features + 1e-9 * random.normal(size=(n, 64))) >= 0


def test_is_symmetric_and_does_not_depend_on_the_order() -> None:
    features, reference = two_sets(20, 30, 64)
    distance = frechet_distance(features, reference)
    assert frechet_distance(reference, features) == pytest.approx(distance, rel=1e-10)
    assert frechet_distance(features[::-1].copy(), reference) == pytest.approx(distance, rel=1e-10)


def test_a_large_common_mean_does_not_matter() -> None:
    """With float32 states torchmetrics gives -1501 for features around 10,000; float32 features are widened first."""
    features, reference = (values.astype(np.float32) for values in two_sets(32, 32, 16))
    distance = frechet_distance(features, reference)
    moved = frechet_distance(features.astype(np.float64) + 1e4, reference.astype(np.float64) + 1e4)
    assert moved == pytest.approx(distance, rel=1e-8)


def test_shards_joined_in_order_give_the_same_last_digit() -> None:
    """13, 5, 3, 1 and no pictures on five ranks."""
    features, reference = two_sets(22, 22, 64)
    shards = [*np.split(features, [13, 18, 21]), features[:0]]
    assert [len(shard) for shard in shards] == [13, 5, 3, 1, 0]
    assert frechet_distance(np.concatenate(shards), reference) == frechet_distance(features, reference)


def test_the_number_of_threads_does_not_matter() -> None:
    sets = two_sets(300, 200, 128)
    values = set()
    for threads in (1, 2, 4):
        with on_threads(threads):
            values.add(frechet_distance(*sets))
    assert len(values) == 1


def test_the_sets_are_left_as_they_are() -> None:
    features, reference = two_sets(5, 5, 8)
    before = features.copy(), reference.copy()
    frechet_distance(features, reference)
    assert (features == before[0]).all()
    assert (reference == before[1]).all()


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_pictures_are_refused(n: int) -> None:
    features, reference = two_sets(4, 4, 8)
    with pytest.raises(ValueError, match=f"^{n} pictures against 4: .* at least 2 on each side, use more prompts"):
        frechet_distance(features[:n], reference)
    with pytest.raises(ValueError, match=f"^4 pictures against {n}: "):
        frechet_distance(features, reference[:n])


def test_features_of_two_extractors_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(4, 8\) and \(4, 9\) are not comparable"):
        frechet_distance(np.zeros((4, 8)), np.zeros((4, 9)))


def test_a_broken_picture_is_refused() -> None:
    features, reference = two_sets(4, 4, 8)
    features[2, 3] = np.nan
    with pytest.raises(ValueError, match="NaN or infinity"):
        frechet_distance(features, reference)
