"""Forecasts of what is late: by hand, and against polynomials that they must continue exactly."""

from __future__ import annotations

import pytest
import torch

from otil_exp.exchange.forecast import FittedGain, coefficients, forecast, gain_for


def test_one_step_old_by_hand() -> None:
    """Order 1: m + (m - m'). Order 2, spacing 1, age a: m + a d + a (a + 1) / 2 d2, so 3, -3, 1 at age 1."""
    assert coefficients([4], 5, 0) == (0.0,)
    assert coefficients([3, 4], 5, 1) == (-1.0, 1.0)
    assert coefficients([2, 3, 4], 5, 2) == (1.0, -3.0, 2.0)


def test_older_and_unevenly_spaced_by_hand() -> None:
    """Known at 4 and 6, wanted at 9: 3 steps on, at half a step's slope a step. Then age 2, order 2: 2 d + 3 d2."""
    assert coefficients([4, 6], 9, 1) == (-1.5, 1.5)
    assert coefficients([2, 3, 4], 6, 2) == (3.0, -8.0, 5.0)


@pytest.mark.parametrize("made", [[1, 2, 3], [0, 2, 7], [5, 6, 9]])
def test_polynomials_are_continued_exactly(made: list[int]) -> None:
    now = made[-1] + 3
    line = torch.tensor([[2.0, -1.0], [0.5, 3.0]], dtype=torch.float64)
    parabola = torch.tensor([[0.25, 1.0], [-2.0, 0.0]], dtype=torch.float64)

    def at(step: int) -> torch.Tensor:
        return 1 + line * step + parabola * step * step

    torch.testing.assert_close(forecast([at(t) for t in made], made, now, 2, 1.0), at(now), rtol=1e-12, atol=1e-12)
    straight = [1 + line * t for t in made]
    torch.testing.assert_close(forecast(straight, made, now, 1, 1.0), 1 + line * now, rtol=1e-12, atol=1e-12)


def test_the_gain_scales_what_is_added() -> None:
    values = [torch.tensor([1.0]), torch.tensor([3.0])]
    assert forecast(values, [0, 1], 2, 1, 0.5).item() == 4.0
    assert forecast(values, [0, 1], 2, 1, torch.tensor(0.25)).item() == 3.5
    assert forecast(values, [0, 1], 2, 0, 1.0) is values[-1]


def test_with_one_value_it_is_that_value() -> None:
    only = torch.ones(2)
    assert forecast([only], [3], 5, 2, 1.0) is only


def test_gains_by_age() -> None:
    assert [gain_for(age) for age in (1, 2, 3)] == [1.0, 0.5, 0.5]


def test_the_fitted_gain_is_the_least_squares_solution() -> None:
    generator = torch.Generator().manual_seed(0)
    gain = FittedGain(0.5, torch.device("cpu"))
    assert gain.value.item() == 0.5
    lasts, changes, values = [torch.randn(3, 40, generator=generator) for _ in range(3)]
    for value, last, change in zip(values, lasts, changes, strict=True):
        gain.see(value, last, change)
    best = torch.linalg.lstsq(changes.reshape(-1, 1).double(), (values - lasts).reshape(-1, 1).double()).solution
    assert gain.value.item() == pytest.approx(best.item(), rel=1e-5)
    gain.forget()
    assert gain.value.item() == 0.5


def test_an_order_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match=r"preset.order=3: use 0 \(the last value\), 1"):
        coefficients([1, 2], 3, 3)
