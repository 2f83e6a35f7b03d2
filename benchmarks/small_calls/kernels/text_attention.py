"""Attention to a text that fits into one block of keys: no loop over keys, nothing rescaled.

A program takes some queries of one head and all keys. Attention made for pictures takes 7.0 µs for 512 queries and 77
keys, which is latency; this takes 4.5 by itself, and 13.8 inside a compiled step (benchmarks/small_calls.md).
"""

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op

from benchmarks.small_calls.kernels.launched import launched


@triton.jit
def rows_of_head(first, keys, key_row, most: tl.constexpr, dim: tl.constexpr):  # type: ignore[no-untyped-def]
    token = tl.arange(0, most)[:, None]
    return tl.load(first + token * key_row + tl.arange(0, dim)[None, :], mask=token < keys, other=0.0)


@triton.jit
def attended_by(query, key, value, keys, scale, most: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.static_assert(most >= 16)  # as the GPU's tl.dot asserts, and the interpreter's does not
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
    k = rows_of_head(key + text, keys, key_row, most, dim)
    place = query + sample * query_sample + head * query_head + row * query_row + d
    q = tl.load(place, mask=row < queries, other=0.0)
    v = rows_of_head(value + text, keys, key_row, most, dim)
    found = attended_by(q, k, v, keys, scale, most)
    place = attended + ((sample * queries + row) * heads + head) * dim + d
    tl.store(place, found.to(attended.dtype.element_ty), mask=row < queries)


@triton_op("otil_small_calls::text_attention", mutates_args={})
def text_attention(query: Tensor, key: Tensor, value: Tensor, rows: int = 64, warps: int = 4) -> Tensor:
    """Softmax attention, accumulated in float32.

    query: (n, heads, queries, d); key, value: (n, heads, keys, d), half precision, d a power of 2 from 16, keys so few
    that a program holds them all. Views as they come out of a product will do: only d has to lie side by side.
    Returns (n, queries, heads * d). rows: queries a program takes, a power of 2 from 16.
    """
    n, heads, queries, dim = query.shape
    keys = key.shape[2]
    assert key.stride() == value.stride()
    assert query.stride(3) == key.stride(3) == 1
    attended = query.new_empty(n, queries, heads * dim)
    grid = (triton.cdiv(queries, rows), heads, n)
    launched(_attention)[grid](
        *(query, key, value, attended, queries, keys, scale_of_scores(dim), *query.stride()[:3], *key.stride()[:3]),
        rows=rows, most=block_of_keys(keys), dim=dim, num_warps=warps,
    )  # fmt: skip
    return attended


def block_of_keys(keys: int) -> int:
    """Keys that a program holds, those behind the last masked: a power of 2, and no less than tl.dot takes on a GPU."""
    return max(16, triton.next_power_of_2(keys))


def scale_of_scores(dim: int) -> float:
    """With which exponentials of scores are powers of 2."""
    return math.log2(math.e) / math.sqrt(dim)
