"""The front of a comparison: the runs that no other run beats in both."""

from __future__ import annotations

from collections.abc import Sequence


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the points (cost, loss) on the front, by rising cost; less is better in both.

    A point is off the front if another is no worse in both and better in one; equal points stay together.
    """
    found: list[int] = []
    for i in sorted(range(len(points)), key=lambda i: points[i]):
        if not found or points[i][1] < points[found[-1]][1] or points[i] == points[found[-1]]:
            found.append(i)
    return found
