"""GroupNorm and SiLU over channels_last, written between halo rows if there are any.

Two ways. A program a group: one kernel, which reads a group once if it fits into the registers of a program and twice
if not. Pixels spread over programs: two kernels, whose reads and writes are whole lines; the first leaves statistics,
which ranks could exchange before the second uses them.
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
def _activated(value, activate: tl.constexpr):  # type: ignore[no-untyped-def]
    if activate:
        value = value / (1 + tl.exp(-value))
    return value


@triton.jit
def _by_group(  # type: ignore[no-untyped-def]
    x, weight, bias, halos, result, channels, eps, width: tl.constexpr, pixels: tl.constexpr, group: tl.constexpr,
    rows: tl.constexpr, most: tl.constexpr, activate: tl.constexpr, halo: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    sample = tl.program_id(1)
    column = tl.arange(0, most)[None, :]
    channel, known = tl.program_id(0) * group + column, column < group
    source = x + sample * pixels * channels + channel
    target = result + sample * (pixels + 2 * halo * width) * channels + halo * width * channels + channel
    chunks: tl.constexpr = (pixels + rows - 1) // rows
    mean, squares, value = 0.0, 0.0, tl.zeros((rows, most), dtype=tl.float32)
    for chunk in range(chunks):  # combined as Chan, Golub and LeVeque do
        pixel = chunk * rows + tl.arange(0, rows)[:, None]
        there = (pixel < pixels) & known
        value = tl.load(source + pixel * channels, mask=there, other=0.0).to(tl.float32)
        before, here = chunk * rows * group, tl.minimum(rows, pixels - chunk * rows) * group
        own = tl.sum(value) / here
        off = tl.where(there, value - own, 0.0)
        change = own - mean
        mean += change * here / (before + here)
        squares += tl.sum(off * off) + change * change * here * before / (before + here)
    scale = tl.load(weight + channel, mask=known, other=0.0).to(tl.float32) * tl.rsqrt(squares / (pixels * group) + eps)
    shift = tl.load(bias + channel, mask=known, other=0.0).to(tl.float32) - mean * scale
    for chunk in range(chunks):
        pixel = chunk * rows + tl.arange(0, rows)[:, None]
        there = (pixel < pixels) & known
        if chunks > 1:
            value = tl.load(source + pixel * channels, mask=there, other=0.0).to(tl.float32)
        found = _activated(value * scale + shift, activate)
        tl.store(target + pixel * channels, found.to(result.dtype.element_ty), mask=there)
    if halo:
        pixel = tl.arange(0, wide)[:, None]
        there = (pixel < width) & known
        samples = tl.num_programs(1)
        above = tl.load(halos + (sample * width + pixel) * channels + channel, mask=there, other=0.0)
        below = tl.load(halos + ((samples + sample) * width + pixel) * channels + channel, mask=there, other=0.0)
        tl.store(target + (pixel - width) * channels, above, mask=there)
        tl.store(target + (pixels + pixel) * channels, below, mask=there)


@triton.jit
def _statistics(  # type: ignore[no-untyped-def]
    x, means, squares, pixels, groups: tl.constexpr, group: tl.constexpr, rows: tl.constexpr, most: tl.constexpr
):
    part, sample, parts = tl.program_id(0), tl.program_id(1), tl.num_programs(0)
    pixel = part * rows + tl.arange(0, rows)[:, None, None]
    which = tl.arange(0, groups)
    column = tl.arange(0, most)[None, None, :]
    there = (pixel < pixels) & (column < group)
    place = x + ((sample * pixels + pixel) * groups + which[None, :, None]) * group + column
    value = tl.load(place, mask=there, other=0.0).to(tl.float32)
    here = tl.minimum(rows, pixels - part * rows) * group
    mean = tl.sum(tl.sum(value, axis=0), axis=1) / here
    off = tl.where(there, value - mean[None, :, None], 0.0)
    place = (sample * parts + part) * groups + which
    tl.store(means + place, mean)
    tl.store(squares + place, tl.sum(tl.sum(off * off, axis=0), axis=1))


@triton.jit
def _normalise(  # type: ignore[no-untyped-def]
    x, means, squares, weight, bias, halos, result, pixels, eps, halo_pixels, parts: tl.constexpr,
    many: tl.constexpr, groups: tl.constexpr, group: tl.constexpr, rows: tl.constexpr, most: tl.constexpr,
    activate: tl.constexpr, halo: tl.constexpr,
):  # fmt: skip
    sample, samples = tl.program_id(1), tl.num_programs(1)
    which, part = tl.arange(0, groups), tl.arange(0, many)[:, None]
    of_part = (sample * parts + part) * groups + which[None, :]
    here = tl.maximum(tl.minimum(rows, pixels - part * rows), 0) * group
    own = tl.load(means + of_part, mask=part < parts, other=0.0)
    mean = tl.sum(own * here, axis=0) / (pixels * group)
    off = own - mean[None, :]
    square = tl.load(squares + of_part, mask=part < parts, other=0.0)
    variance = tl.sum(square + off * off * here, axis=0) / (pixels * group)
    column = tl.arange(0, most)[None, :]
    channel, known = which[:, None] * group + column, column < group
    scale = tl.load(weight + channel, mask=known, other=0.0).to(tl.float32) * tl.rsqrt(variance + eps)[:, None]
    shift = tl.load(bias + channel, mask=known, other=0.0).to(tl.float32) - mean[:, None] * scale
    pixel = tl.program_id(0) * rows + tl.arange(0, rows)[:, None, None] - halo_pixels
    channel, known = channel[None, :, :], known[None, :, :]
    inside = (pixel >= 0) & (pixel < pixels) & known
    value = tl.load(x + (sample * pixels + pixel) * groups * group + channel, mask=inside, other=0.0).to(tl.float32)
    found = _activated(value * scale[None, :, :] + shift[None, :, :], activate).to(result.dtype.element_ty)
    written = inside
    if halo:
        side = (pixel >= pixels).to(tl.int32)
        outside = (pixel < pixels + halo_pixels) & ((pixel < 0) | (pixel >= pixels)) & known
        from_start = pixel + halo_pixels - side * (pixels + halo_pixels)
        row = ((side * samples + sample) * halo_pixels + from_start) * groups * group
        found = tl.where(inside, found, tl.load(halos + row + channel, mask=outside, other=0.0))
        written = inside | outside
    place = (sample * (pixels + 2 * halo_pixels) + halo_pixels + pixel) * groups * group + channel
    tl.store(result + place, found, mask=written)


@triton_op("otil_small_calls::group_norm", mutates_args={})
def group_norm(
    x: Tensor, weight: Tensor, bias: Tensor, halos: Optional[Tensor],  # noqa: UP045
    groups: int, eps: float, activate: bool, rows: int, warps: int,
) -> Tensor:  # fmt: skip
    """GroupNorm of each sample, then SiLU if asked for; a program a group.

    x: (n, C, h, w), channels_last; weight, bias: (C,); halos: (2, n, C, 1, w), channels side by side, written above
    and below as they are. Returns (n, C, h, w), or (n, C, h + 2, w) with halos; channels_last, in x's dtype.
    rows: pixels a program has in registers at a time, a power of 2.
    """
    n, channels, h, w = x.shape
    result = _empty_result(x, halos)
    group, pixels = channels // groups, h * w
    launched(_by_group)[(groups, n)](
        *(x, weight, bias, x if halos is None else halos, result, channels, eps),
        width=w, pixels=pixels, group=group, rows=min(rows, triton.next_power_of_2(pixels)),
        most=triton.next_power_of_2(group), activate=activate, halo=halos is not None,
        wide=triton.next_power_of_2(w), num_warps=warps,
    )  # fmt: skip
    return result


@triton_op("otil_small_calls::spread_group_norm", mutates_args={})
def spread_group_norm(
    x: Tensor, weight: Tensor, bias: Tensor, halos: Optional[Tensor],  # noqa: UP045
    groups: int, eps: float, activate: bool, rows: int, warps: int,
) -> Tensor:  # fmt: skip
    """As group_norm, in two kernels: a program takes all channels of `rows` pixels, a power of 2. groups: one, too."""
    n, channels, h, w = x.shape
    result = _empty_result(x, halos)
    group, pixels, halo_pixels = channels // groups, h * w, 0 if halos is None else w
    parts = triton.cdiv(pixels, rows)
    means, squares = (torch.empty(n, parts, groups, dtype=torch.float32, device=x.device) for _ in range(2))
    tile = {"groups": groups, "group": group, "rows": rows, "most": triton.next_power_of_2(group)}
    launched(_statistics)[(parts, n)](x, means, squares, pixels, **tile, num_warps=warps)
    launched(_normalise)[(triton.cdiv(pixels + 2 * halo_pixels, rows), n)](
        *(x, means, squares, weight, bias, x if halos is None else halos, result, pixels, eps, halo_pixels),
        **tile, parts=parts, many=triton.next_power_of_2(parts), activate=activate, halo=halos is not None,
        num_warps=warps,
    )  # fmt: skip
    return result


def _empty_result(x: Tensor, halos: Optional[Tensor]) -> Tensor:  # noqa: UP045
    n, channels, h, w = x.shape
    assert x.is_contiguous(memory_format=torch.channels_last)
    if halos is not None:
        assert halos.shape == (2, n, channels, 1, w)
        assert halos.permute(0, 1, 3, 4, 2).is_contiguous()
        h += 2
    return torch.empty(n, channels, h, w, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
