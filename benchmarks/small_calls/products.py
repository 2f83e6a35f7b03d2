"""Products of few rows: alone, and with bias and residual."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.small_calls.case import DEVICE, ON_CPU, Candidate, Case, compiled, copies, floor_us, random
from benchmarks.small_calls.kernels.split_product import split_product


@dataclass(frozen=True)
class Shape:
    count: int
    """Of products of this shape."""
    with_residual: int
    """Of these, those that end with bias and residual."""
    m: int
    k: int
    n: int


class Factors(NamedTuple):
    x: Tensor
    """(M, K)"""
    weight: Tensor
    """(N, K)"""
    bias: Tensor
    residual: Tensor
    """(M, N)"""


class Quantised(NamedTuple):
    """e4m3, with one scale a tensor."""

    x: Tensor
    scale_x: Tensor
    weight: Tensor
    scale_weight: Tensor


SHAPES = [Shape(180, 120, 40, 64, 48)] if ON_CPU else [Shape(180, 120, 512, 1280, 1280), Shape(30, 20, 2048, 640, 640)]

CONFIGS = (
    [(1, 32, 16, 32, 4, 3), (3, 32, 32, 16, 4, 3)]
    if ON_CPU
    else [
        (3, 128, 128, 64, 8, 4),
        (2, 128, 128, 64, 8, 4),
        (2, 64, 128, 64, 4, 4),
        (3, 64, 256, 64, 8, 4),
        (1, 64, 128, 64, 4, 5),
        (1, 128, 64, 64, 4, 5),
    ]
)
"""Splits, rows, columns, inner step, warps, stages."""


@cache
def arrived() -> Tensor:
    return torch.zeros(1024, dtype=torch.int32, device=DEVICE)


def inputs(shape: Shape) -> Callable[[], list[Factors]]:
    def made() -> list[Factors]:
        x, bias, residual = random(shape.m, shape.k), random(shape.n), random(shape.m, shape.n)
        weights = (random(shape.n, shape.k, scale=shape.k**-0.5) for _ in range(copies(2.0 * shape.n * shape.k)))
        return [Factors(x, weight, bias, residual) for weight in weights]

    return made


def ours(finished: bool) -> list[Candidate]:
    """finished: with bias and residual."""

    def candidate(splits: int, rows: int, columns: int, step: int, warps: int, stages: int) -> Candidate:
        def call(one: Factors) -> Tensor:
            end = (one.bias, one.residual) if finished else (None, None)
            return split_product(one.x, one.weight, *end, arrived(), splits, rows, columns, step, warps, stages)

        words = f"{rows} x {columns}, steps of {step}, {warps} warps, {stages} stages"
        return Candidate(f"ours, {'split' if splits > 1 else 'not split'}", call, f"{splits} splits, {words}")

    return [candidate(*config) for config in CONFIGS]


def quantised(factors: list[Factors]) -> list[Quantised]:
    return [Quantised(*_e4m3(one.x), *_e4m3(one.weight)) for one in factors]


def _e4m3(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().max().float() / 448
    return (x.float() / scale).to(torch.float8_e4m3fn), scale


def into_residual(factors: list[Factors]) -> list[Factors]:
    """All add to one tensor, whose first value is bias and residual."""
    first = factors[0].residual + factors[0].bias
    return [one._replace(residual=first) for one in factors]


def scaled(one: Quantised) -> Tensor:
    return torch._scaled_mm(
        one.x, one.weight.t(), one.scale_x, one.scale_weight, out_dtype=torch.float16, use_fast_accum=True
    )


def plain(one: Factors) -> Tensor:
    return F.linear(one.x, one.weight)


def with_residual(one: Factors) -> Tensor:
    return F.linear(one.x, one.weight, one.bias) + one.residual


def alone_case(shape: Shape) -> Case:
    fp8 = [] if ON_CPU else [Candidate("fp8 by _scaled_mm, inputs quantised before", scaled, prepare=quantised)]
    return Case(
        "product",
        f"{shape.m} x {shape.k} x {shape.n}",
        shape.count,
        _floor(shape, 1),
        inputs(shape),
        lambda one: plain(_exactly(one)),
        (Candidate("cuBLAS", plain), *ours(False), *fp8),
    )


def finished_case(shape: Shape) -> Case:
    return Case(
        "product, bias, residual",
        f"{shape.m} x {shape.k} x {shape.n}",
        shape.with_residual,
        _floor(shape, 2),
        inputs(shape),
        lambda one: with_residual(_exactly(one)),
        (
            Candidate("cuBLAS, an addition", with_residual),
            Candidate(
                "cuBLAS, into the residual", lambda one: one.residual.addmm_(one.x, one.weight.t()), "", into_residual
            ),
            *ours(True),
            Candidate("compiled", compiled(with_residual)),
        ),
    )


def _floor(shape: Shape, outputs: int) -> float:
    """outputs: tensors as large as the result that are read or written."""
    moved = 2.0 * (shape.m * shape.k + shape.k * shape.n + outputs * shape.m * shape.n)
    return floor_us(moved, 2.0 * shape.m * shape.k * shape.n)


def _exactly(one: Factors) -> Factors:
    return Factors(*(tensor.double() for tensor in one))


def cases() -> list[Case]:
    return [case(shape) for case in (alone_case, finished_case) for shape in SHAPES]
