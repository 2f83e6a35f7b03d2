"""What is late, carried on to now: forecasts of order 0, 1 and 2 from the last values, in the manner of TaylorSeer.

A value was made for a step; the forecast for a later step is the polynomial through the last one, two or three values,
and `gain` scales what it adds to the last value. Pure tensor code; the steps are known before a picture begins, so the
coefficients are numbers of Python and nothing waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

ORDERS = (0, 1, 2)
"""0: the last value as it is. 1: a line through the last two. 2: a parabola through the last three."""


def gain_for(age: int) -> float:
    """The gain used where none is given: 1 for what is one step old, 0.5 for older (measured, benchmarks/fold.md)."""
    return 1.0 if age <= 1 else 0.5


def coefficients(made: Sequence[int], now: int, order: int) -> tuple[float, ...]:
    """Weights of the values of steps `made` (rising) in what the forecast adds to the last one; they sum up to 0.

    Fewer values than order + 1 give a forecast of lower order. Raises ValueError for an order that does not exist.
    """
    if order not in ORDERS:
        raise ValueError(f"preset.order={order}: use 0 (the last value), 1 (a line) or 2 (a parabola)")
    points = list(made)[-order - 1 :]
    weights = [_lagrange(points, index, now) for index in range(len(points))]
    weights[-1] -= 1.0
    return tuple(weights)


def forecast(values: Sequence[Tensor], made: Sequence[int], now: int, order: int, gain: float | Tensor) -> Tensor:
    """The value expected at step `now`: the last one plus gain times what the polynomial adds to it.

    values: made at the steps `made` (rising), all of one shape. gain: a number, or a tensor () of the device.
    Returns the last value itself (not a copy) where nothing is added.
    """
    change = extrapolated_change(values, made, now, order)
    return values[-1] if change is None else values[-1] + gain * change


def extrapolated_change(values: Sequence[Tensor], made: Sequence[int], now: int, order: int) -> Tensor | None:
    """What the polynomial adds to the last value until step `now`; None for nothing."""
    weights = coefficients(made, now, order)
    if len(weights) < 2:
        return None
    used = values[-len(weights) :]
    change = used[0] * weights[0]
    for value, weight in zip(used[1:], weights[1:], strict=True):
        change = change.add(value, alpha=weight)
    return change


class FittedGain:
    """The gain that would have been best so far: least squares over the values of which both are known.

    For values y whose forecast from the values `age` steps before and older is last + change, it is the gain that
    minimises the sum of (y - last - gain * change)^2, which is sum((y - last) change) / sum(change^2). Lives on the
    device, so that nothing waits for it; `given` until something was seen.
    """

    def __init__(self, given: float, device: torch.device) -> None:
        self._given = torch.tensor(float(given), device=device)
        self._product = torch.zeros((), dtype=torch.float32, device=device)
        self._square = torch.zeros((), dtype=torch.float32, device=device)

    def see(self, value: Tensor, last: Tensor, change: Tensor) -> None:
        """Take into account what was forecast, and what it really was."""
        change = change.float()
        self._product += ((value - last).float() * change).sum()
        self._square += change.square().sum()

    def forget(self) -> None:
        """Begin anew."""
        self._product.zero_()
        self._square.zero_()

    @property
    def value(self) -> Tensor:
        """The gain, (): a tensor of the device."""
        return torch.where(self._square > 0, self._product / self._square.clamp_min(1e-30), self._given)


def _lagrange(points: Sequence[int], index: int, now: int) -> float:
    weight = 1.0
    for other, point in enumerate(points):
        if other != index:
            weight *= (now - point) / (points[index] - point)
    return weight
