"""GroupNorm and SiLU of a slice in channels_last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.small_calls.case import ON_CPU, Candidate, Case, compiled, floor_us, random
from benchmarks.small_calls.kernels.group_norm import group_norm, spread_group_norm

GROUPS, EPS = 32, 1e-5

CALLS = 2 if ON_CPU else 64
"""One after the other; all they read is in the cache, as what a convolution has just written."""


@dataclass(frozen=True)
class Shape:
    count: int
    channels: int
    rows: int
    width: int
    group_configs: tuple[tuple[int, int], ...]
    """Pixels at a time, warps."""
    spread_configs: tuple[tuple[int, int], ...]
    halos: bool = False


class Normed(NamedTuple):
    x: Tensor
    """(1, C, h, w), channels_last."""
    weight: Tensor
    bias: Tensor
    halos: Tensor | None
    """(2, 1, C, 1, w)"""


SHAPES = [
    Shape(8, 320, 32, 128, ((512, 16), (2048, 32)), ((32, 8), (64, 16))),
    Shape(11, 640, 16, 64, ((1024, 32), (512, 16)), ((8, 8), (16, 8))),
    Shape(16, 1280, 8, 32, ((256, 16), (256, 8)), ((2, 4), (4, 8))),
    Shape(8, 320, 32, 128, ((512, 16),), ((32, 8),), halos=True),
]
if ON_CPU:
    SHAPES = [
        Shape(1, 96, 3, 5, ((4, 4), (16, 4)), ((8, 4),)),
        Shape(1, 64, 4, 6, ((8, 4),), ((4, 4), (16, 4)), halos=True),
    ]


def inputs(shape: Shape) -> Callable[[], list[Normed]]:
    def made() -> list[Normed]:
        c, h, w = shape.channels, shape.rows, shape.width
        x = (2 * random(1, c, h, w) + 1).contiguous(memory_format=torch.channels_last)
        halos = random(2, 1, 1, w, c).permute(0, 1, 4, 2, 3) if shape.halos else None
        return [Normed(x, 1 + random(c, scale=0.2), random(c, scale=0.2), halos) for _ in range(CALLS)]

    return made


def plain(one: Normed) -> Tensor:
    found = F.silu(F.group_norm(one.x, GROUPS, one.weight, one.bias, EPS))
    return found if one.halos is None else torch.cat([one.halos[0], found, one.halos[1]], dim=2)


def exactly(one: Normed) -> Tensor:
    return plain(Normed(*(None if tensor is None else tensor.double() for tensor in one)))


def case(shape: Shape) -> Case:
    def ours(kernel: Callable[..., Tensor], family: str, rows: int, warps: int) -> Candidate:
        def call(one: Normed) -> Tensor:
            return kernel(*one, GROUPS, EPS, True, rows, warps)

        return Candidate(family, call, f"{rows} pixels, {warps} warps")

    values = shape.channels * shape.width * shape.rows
    edges = 2 * shape.channels * shape.width if shape.halos else 0
    return Case(
        "GroupNorm, SiLU",
        f"{shape.channels} x {shape.rows}{' + 2' if shape.halos else ''} x {shape.width}",
        shape.count,
        floor_us(4.0 * (values + edges), 0),
        inputs(shape),
        exactly,
        (
            Candidate("eager", plain),
            *(ours(group_norm, "ours, a program a group", *config) for config in shape.group_configs),
            *(ours(spread_group_norm, "ours, pixels spread", *config) for config in shape.spread_configs),
            Candidate("compiled", compiled(plain)),
        ),
    )


def cases() -> list[Case]:
    return [case(shape) for shape in SHAPES]
