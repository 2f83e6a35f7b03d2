"""The codecs of a GPU: encode and decode in one kernel each, the same bytes as the plain form in `codec`.

A program takes some groups of values: it reads them once, finds each group's largest magnitude, and writes scale and
quantised values to where the plain form has them. Nothing is allocated but the result, and nothing waits for the
device, so both can be recorded in a CUDA graph.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

QUANTIZERS = ("fp8", "int8", "int4")
"""What there are kernels for."""

_GROUPS = 32
"""Groups a program takes: 4,096 values, so that a program has enough reads under way."""


@triton.jit
def _scale(largest, top: tl.constexpr):  # type: ignore[no-untyped-def]
    return tl.where(largest > 0, tl.math.div_rn(largest, tl.full(largest.shape, top, tl.float32)), 1.0)


@triton.jit
def _encode_bytes(  # type: ignore[no-untyped-def]
    values, scales, written, count, groups, top: tl.constexpr, fp8: tl.constexpr, size: tl.constexpr, many: tl.constexpr
):
    group = tl.program_id(0) * many + tl.arange(0, many)
    place = group[:, None].to(tl.int64) * size + tl.arange(0, size)[None, :]
    x = tl.load(values + place, mask=place < count, other=0.0).to(tl.float32)
    scale = _scale(tl.max(tl.abs(x), axis=1), top)
    scaled = tl.math.div_rn(x, tl.broadcast_to(scale[:, None], x.shape))
    if fp8:
        quantised = scaled.to(tl.float8e4nv).to(tl.uint8, bitcast=True)
    else:
        quantised = libdevice.rint(scaled).to(tl.int8).to(tl.uint8, bitcast=True)
    tl.store(scales + group, scale, mask=group < groups)
    tl.store(written + place, quantised, mask=group[:, None] < groups)


@triton.jit
def _encode_nibbles(  # type: ignore[no-untyped-def]
    values, scales, written, count, groups, top: tl.constexpr, size: tl.constexpr, many: tl.constexpr
):
    group = tl.program_id(0) * many + tl.arange(0, many)
    place = group[:, None].to(tl.int64) * size + tl.arange(0, size)[None, :]
    x = tl.load(values + place, mask=place < count, other=0.0).to(tl.float32)
    scale = _scale(tl.max(tl.abs(x), axis=1), top)
    shifted = libdevice.rint(tl.math.div_rn(x, tl.broadcast_to(scale[:, None], x.shape))) + 8
    low, high = tl.split(tl.reshape(shifted.to(tl.uint8), (many, size // 2, 2)))
    tl.store(scales + group, scale, mask=group < groups)
    half = group[:, None].to(tl.int64) * (size // 2) + tl.arange(0, size // 2)[None, :]
    tl.store(written + half, low | (high << 4), mask=group[:, None] < groups)


@triton.jit
def _decode_bytes(  # type: ignore[no-untyped-def]
    scales, written, values, count, groups, fp8: tl.constexpr, size: tl.constexpr, many: tl.constexpr
):
    group = tl.program_id(0) * many + tl.arange(0, many)
    place = group[:, None].to(tl.int64) * size + tl.arange(0, size)[None, :]
    scale = tl.load(scales + group, mask=group < groups, other=1.0)
    read = tl.load(written + place, mask=group[:, None] < groups, other=0)
    if fp8:  # noqa: SIM108 - each branch is compiled by itself
        x = read.to(tl.float8e4nv, bitcast=True).to(tl.float32)
    else:
        x = read.to(tl.int8, bitcast=True).to(tl.float32)
    tl.store(values + place, (x * scale[:, None]).to(values.dtype.element_ty), mask=place < count)


@triton.jit
def _decode_nibbles(  # type: ignore[no-untyped-def]
    scales, written, values, count, groups, size: tl.constexpr, many: tl.constexpr
):
    group = tl.program_id(0) * many + tl.arange(0, many)
    half = group[:, None].to(tl.int64) * (size // 2) + tl.arange(0, size // 2)[None, :]
    scale = tl.load(scales + group, mask=group < groups, other=1.0)[:, None]
    read = tl.load(written + half, mask=group[:, None] < groups, other=0)
    low = ((read & 15).to(tl.float32) - 8) * scale
    high = ((read >> 4).to(tl.float32) - 8) * scale
    x = tl.interleave(low, high).to(values.dtype.element_ty)
    place = group[:, None].to(tl.int64) * size + tl.arange(0, size)[None, :]
    tl.store(values + place, x, mask=place < count)


def encode(values: Tensor, quantizer: str, top: float, group: int) -> Tensor:
    """Bytes of values (n,) on a GPU: scales (groups,) float32, then the quantised values, uint8.

    top: what a group's largest magnitude becomes. group: values that share a scale.
    """
    count, groups = values.numel(), triton.cdiv(values.numel(), group)
    width = group // 2 if quantizer == "int4" else group
    encoded = torch.empty(groups * (4 + width), dtype=torch.uint8, device=values.device)
    scales, written = encoded[: 4 * groups].view(torch.float32), encoded[4 * groups :]
    programs = (triton.cdiv(groups, _GROUPS),)
    values = values.contiguous()
    if quantizer == "int4":
        _encode_nibbles[programs](values, scales, written, count, groups, top, group, _GROUPS)
    else:
        _encode_bytes[programs](values, scales, written, count, groups, top, quantizer == "fp8", group, _GROUPS)
    return encoded


def decode(encoded: Tensor, count: int, dtype: torch.dtype, quantizer: str, group: int) -> Tensor:
    """The values (count,) of a dtype that bytes on a GPU stand for."""
    groups = triton.cdiv(count, group)
    scales, written = encoded[: 4 * groups].view(torch.float32), encoded[4 * groups :]
    values = torch.empty(count, dtype=dtype, device=encoded.device)
    programs = (triton.cdiv(groups, _GROUPS),)
    if quantizer == "int4":
        _decode_nibbles[programs](scales, written, values, count, groups, group, _GROUPS)
    else:
        _decode_bytes[programs](scales, written, values, count, groups, quantizer == "fp8", group, _GROUPS)
    return values
