"""A machine's links as data: seconds of every operation by its size and the number of ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

WIRE_BYTES: dict[str, Callable[[float, int], float]] = {
    "all_gather": lambda size, ranks: size * (ranks - 1),
    "all_reduce": lambda size, ranks: 2 * size * (ranks - 1) / ranks,
    "broadcast": lambda size, ranks: size,
    "point_to_point": lambda size, ranks: size,
}
"""By operation, what a rank's link carries of it one way, in bytes: size is as in `otil_exp.traffic.Message`, and the
algorithm a ring (nccl-tests, doc/PERFORMANCE.md)."""


@dataclass(frozen=True)
class Curve:
    """Seconds of one operation by its size, among so many ranks."""

    operation: str
    """A key of WIRE_BYTES."""

    world_size: int
    """Ranks that take part."""

    points: tuple[tuple[int, float], ...]
    """(bytes, seconds), by rising bytes. A data sheet's latency and bandwidth are two points, the first of 0 bytes."""

    def __post_init__(self) -> None:
        if self.operation not in WIRE_BYTES:
            raise ValueError(f"operation {self.operation!r}: use one of {', '.join(WIRE_BYTES)}")
        if self.world_size < 2:
            raise ValueError(f"world_size={self.world_size} of {self.operation}: a link takes at least 2 ranks")
        sizes = [size for size, _ in self.points]
        if len(sizes) < 2 or sizes != sorted(set(sizes)) or sizes[0] < 0:
            raise ValueError(f"the points of {self.operation} need at least two sizes in bytes, rising: {sizes}")
        if not all(math.isfinite(seconds) and seconds >= 0 for _, seconds in self.points):
            raise ValueError(f"the points of {self.operation} need seconds of at least 0: {self.points}")

    def seconds(self, size: float) -> float:
        """Straight lines between the points, as latency + bytes / bandwidth is one; on with the last one's slope."""
        if size <= self.points[0][0]:
            return self.points[0][1]
        for (left, start), (right, end) in pairwise(self.points):
            if size <= right:
                return start + (end - start) * (size - left) / (right - left)
        return end + max(end - start, 0.0) * (size - right) / (right - left)


@dataclass(frozen=True)
class Links:
    """What connects the ranks of a machine or a cluster, and how fast it is."""

    name: str
    source: str
    """Machine and versions where it was measured, else the data sheet or table it is from."""

    date: str
    """When it was measured or looked up: 2026-11-30."""

    measured: bool
    """Whether the curves were measured; else they are latency + bytes / bandwidth of a source."""

    curves: tuple[Curve, ...]

    host_s: float = 0.0
    """Seconds in every time of the curves that are the host's call and not the wire's. A step's computation has them on
    any link, or, replayed as a CUDA graph, on none."""

    def __post_init__(self) -> None:
        if not self.curves:
            raise ValueError(f"links {self.name!r} have no curves: give at least that of all_gather")
        kinds = [(one.operation, one.world_size) for one in self.curves]
        if twice := {kind for kind in kinds if kinds.count(kind) > 1}:
            operation, ranks = min(twice)
            raise ValueError(f"links {self.name!r} have two curves of {operation} among {ranks} ranks: give one")
        if not (math.isfinite(self.host_s) and self.host_s >= 0):
            raise ValueError(f"host_s={self.host_s} of links {self.name!r}: use 0 or more seconds")

    def seconds(self, operation: str, size: float, ranks: int) -> float:
        """How long an operation of this size keeps the link of a rank busy, without the host's call.

        size: bytes, as in `otil_exp.traffic.Message`. Where there is no curve of this operation among so many ranks,
        the nearest one stands in at equal bytes on the wire: of this operation first, then of the nearest number of
        ranks.
        """
        if operation not in WIRE_BYTES:
            raise ValueError(f"operation {operation!r}: use one of {', '.join(WIRE_BYTES)}")
        curve = min(self.curves, key=lambda one: (one.operation != operation, abs(math.log(one.world_size / ranks))))
        on_wire = WIRE_BYTES[operation](size, ranks)
        return max(curve.seconds(on_wire / WIRE_BYTES[curve.operation](1, curve.world_size)) - self.host_s, 0.0)
