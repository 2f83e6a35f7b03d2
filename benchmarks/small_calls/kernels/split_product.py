"""Products of few rows whose inner dimension is split over programs, with bias and residual added at the end.

An output tile has `splits` programs, each of which multiplies a part of the inner dimension and leaves its sum in fp32.
The last to arrive adds all of them, always in the same order, so the result is the same in every call.
"""

from __future__ import annotations

from typing import Optional

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op

from benchmarks.small_calls.kernels.launched import launched


@triton.jit
def _split_product(  # type: ignore[no-untyped-def]
    x, weight, bias, residual, result, sums, arrived, m, n, k, has_bias: tl.constexpr, has_residual: tl.constexpr,
    splits: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr, step: tl.constexpr,
):  # fmt: skip
    split, tile = tl.program_id(0), tl.program_id(1)
    across = tl.cdiv(n, columns)
    row = (tile // across) * rows + tl.arange(0, rows)[:, None]
    column = (tile % across) * columns + tl.arange(0, columns)[None, :]
    steps = tl.cdiv(tl.cdiv(k, step), splits)
    one = split * steps * step + tl.arange(0, step)
    left = x + row * k + one[None, :]
    right = weight + column * k + one[:, None]
    total = tl.zeros((rows, columns), dtype=tl.float32)
    for _ in range(0, tl.minimum(steps, tl.cdiv(k, step) - split * steps)):
        a = tl.load(left, mask=row < m, other=0.0)
        b = tl.load(right, mask=column < n, other=0.0)
        total = tl.dot(a, b, total)
        left += step
        right += step
    if splits == 1:
        _finish(total, bias, residual, result, row, column, m, n, has_bias, has_residual)
    else:
        own = tl.arange(0, rows)[:, None] * columns + tl.arange(0, columns)[None, :]
        of_tile = sums + tile * splits * rows * columns + own
        tl.store(of_tile + split * rows * columns, total)
        tl.debug_barrier()  # all threads have stored before one of them says so
        if tl.atomic_add(arrived + tile, 1, sem="acq_rel", scope="gpu") == splits - 1:
            total = tl.zeros((rows, columns), dtype=tl.float32)
            for other in tl.static_range(splits):
                total += tl.load(of_tile + other * rows * columns, cache_modifier=".cg")
            _finish(total, bias, residual, result, row, column, m, n, has_bias, has_residual)
            tl.store(arrived + tile, 0)


@triton.jit
def _finish(  # type: ignore[no-untyped-def]
    total, bias, residual, result, row, column, m, n, has_bias: tl.constexpr, has_residual: tl.constexpr
):
    inside = (row < m) & (column < n)
    if has_bias:
        total += tl.load(bias + column, mask=column < n, other=0.0).to(tl.float32)
    if has_residual:
        total += tl.load(residual + row * n + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(result + row * n + column, total.to(result.dtype.element_ty), mask=inside)


@triton_op("otil_small_calls::split_product", mutates_args={"arrived"})
def split_product(
    x: Tensor, weight: Tensor, bias: Optional[Tensor], residual: Optional[Tensor], arrived: Tensor,  # noqa: UP045
    splits: int, rows: int, columns: int, step: int, warps: int, stages: int,
) -> Tensor:  # fmt: skip
    """x @ weight.T + bias + residual, accumulated in fp32, rounded once.

    x: (..., K); weight: (N, K); bias: (N,); residual: (..., N); all contiguous. Returns (..., N).
    arrived: int32 zeros, at least one a tile; zero again afterwards. Two calls at the same time need one each.
    rows, columns, step: the tile; step divides K.
    """
    (n, k), m = weight.shape, x.numel() // x.shape[-1]
    assert all(one.is_contiguous() for one in (x, weight, bias, residual) if one is not None)
    assert k % step == 0
    tiles = triton.cdiv(m, rows) * triton.cdiv(n, columns)
    assert tiles <= arrived.numel()
    result = x.new_empty(*x.shape[:-1], n)
    sums = torch.empty(tiles * splits * rows * columns if splits > 1 else 1, dtype=torch.float32, device=x.device)
    launched(_split_product)[(splits, tiles)](
        *(x, weight, x if bias is None else bias, x if residual is None else residual, result, sums, arrived, m, n, k),
        has_bias=bias is not None, has_residual=residual is not None,
        splits=splits, rows=rows, columns=columns, step=step, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return result
