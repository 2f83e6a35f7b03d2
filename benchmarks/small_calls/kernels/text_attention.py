"""Attention to a text that fits into one block of keys: no loop over keys, nothing rescaled.

A program takes some queries of one head and all keys. With the query's product in the same kernel, it first computes
these queries from the tokens, and they never leave the chip.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op

from benchmarks.small_calls.kernels.launched import launched


@triton.jit
def _rows_of_head(first, keys, key_row, most: tl.constexpr, dim: tl.constexpr):  # type: ignore[no-untyped-def]
    token = tl.arange(0, most)[:, None]
    return tl.load(first + token * key_row + tl.arange(0, dim)[None, :], mask=token < keys, other=0.0)


@triton.jit
def _attended(query, key, value, keys, scale, most: tl.constexpr):  # type: ignore[no-untyped-def]
    scores = tl.dot(query, tl.trans(key)) * scale
    scores = tl.where(tl.arange(0, most)[None, :] < keys, scores, float("-inf"))
    weights = tl.exp2(scores - tl.max(scores, axis=1)[:, None])
    total = tl.sum(weights, axis=1)
    return tl.dot(weights.to(value.dtype), value) / total[:, None]


@triton.jit
def _attention(  # type: ignore[no-untyped-def]
    query, key, value, attended, queries, keys, scale, query_sample, query_head, query_row, key_sample, key_head,
    key_row, rows: tl.constexpr, most: tl.constexpr, dim: tl.constexpr,
):  # fmt: skip
    head, sample, heads = tl.program_id(1), tl.program_id(2), tl.num_programs(1)
    row = tl.program_id(0) * rows + tl.arange(0, rows)[:, None]
    d = tl.arange(0, dim)[None, :]
    text = sample * key_sample + head * key_head
    k = _rows_of_head(key + text, keys, key_row, most, dim)
    place = query + sample * query_sample + head * query_head + row * query_row + d
    q = tl.load(place, mask=row < queries, other=0.0)
    v = _rows_of_head(value + text, keys, key_row, most, dim)
    found = _attended(q, k, v, keys, scale, most)
    place = attended + ((sample * queries + row) * heads + head) * dim + d
    tl.store(place, found.to(attended.dtype.element_ty), mask=row < queries)


@triton.jit
def _query_attention(  # type: ignore[no-untyped-def]
    tokens, weight, key, value, attended, queries, width, keys, scale, key_sample, key_head, key_row,
    rows: tl.constexpr, step: tl.constexpr, most: tl.constexpr, dim: tl.constexpr, text_first: tl.constexpr,
):  # fmt: skip
    head, sample, heads = tl.program_id(1), tl.program_id(2), tl.num_programs(1)
    row = tl.program_id(0) * rows + tl.arange(0, rows)[:, None]
    d = tl.arange(0, dim)[None, :]
    text = sample * key_sample + head * key_head
    if text_first:
        k = _rows_of_head(key + text, keys, key_row, most, dim)
        v = _rows_of_head(value + text, keys, key_row, most, dim)
    one = tl.arange(0, step)
    left = tokens + (sample * queries + row) * width + one[None, :]
    right = weight + (head * dim + d) * width + one[:, None]
    product = tl.zeros((rows, dim), dtype=tl.float32)
    for _ in range(0, width, step):
        product = tl.dot(tl.load(left, mask=row < queries, other=0.0), tl.load(right), product)
        left += step
        right += step
    if not text_first:
        k = _rows_of_head(key + text, keys, key_row, most, dim)
        v = _rows_of_head(value + text, keys, key_row, most, dim)
    found = _attended(product.to(tokens.dtype.element_ty), k, v, keys, scale, most)
    place = attended + ((sample * queries + row) * heads + head) * dim + d
    tl.store(place, found.to(attended.dtype.element_ty), mask=row < queries)


@triton_op("otil_small_calls::text_attention", mutates_args={})
def text_attention(query: Tensor, key: Tensor, value: Tensor, rows: int, warps: int) -> Tensor:
    """Softmax attention, accumulated in fp32.

    query: (n, heads, queries, d); key, value: (n, heads, keys, d), d and keys at least 16. Views as they come out of
    a product will do: only d has to lie side by side. Returns (n, queries, heads * d).
    rows: queries a program takes, a power of 2 from 16.
    """
    n, heads, queries, dim = query.shape
    keys = key.shape[2]
    assert key.stride() == value.stride()
    assert query.stride(3) == key.stride(3) == 1
    attended = query.new_empty(n, queries, heads * dim)
    grid = (triton.cdiv(queries, rows), heads, n)
    launched(_attention)[grid](
        *(query, key, value, attended, queries, keys, _scale(dim), *query.stride()[:3], *key.stride()[:3]),
        rows=rows, most=triton.next_power_of_2(keys), dim=dim, num_warps=warps,
    )  # fmt: skip
    return attended


@triton_op("otil_small_calls::query_attention", mutates_args={})
def query_attention(
    tokens: Tensor, weight: Tensor, key: Tensor, value: Tensor,
    rows: int, step: int, warps: int, stages: int, text_first: bool,
) -> Tensor:  # fmt: skip
    """Softmax attention of queries that are tokens times a weight without bias, rounded to the dtype of the tokens.

    tokens: (n, queries, C), contiguous; weight: (heads * d, C), contiguous; key, value as in text_attention. Returns
    (n, queries, heads * d).
    rows, step: the tile of tokens that is multiplied at a time; step divides C. text_first: keys and values are read
    before the product, which hides how long they take and keeps registers.
    """
    n, queries, width = tokens.shape
    heads, keys, dim = key.shape[1:]
    assert key.stride() == value.stride()
    assert key.stride(3) == 1
    assert tokens.is_contiguous()
    assert weight.is_contiguous()
    assert width % step == 0
    attended = tokens.new_empty(n, queries, heads * dim)
    grid = (triton.cdiv(queries, rows), heads, n)
    launched(_query_attention)[grid](
        *(tokens, weight, key, value, attended, queries, width, keys, _scale(dim), *key.stride()[:3]),
        rows=rows, step=step, most=triton.next_power_of_2(keys), dim=dim, text_first=text_first,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return attended


def _scale(dim: int) -> float:
    """Of scores whose exponentials are powers of 2."""
    return math.log2(math.e) / math.sqrt(dim)


def plain_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """What text_attention computes, written down."""
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    return (torch.softmax(scores, dim=-1) @ value).transpose(1, 2).flatten(2)
