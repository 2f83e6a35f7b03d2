"""Attention to a text with the query's product in the same kernel.

A program computes some queries of one head from the tokens, and they never leave the chip.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op

from benchmarks.small_calls.kernels.launched import launched
from benchmarks.small_calls.kernels.text_attention import attended_by, block_of_keys, rows_of_head, scale_of_scores


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
        k = rows_of_head(key + text, keys, key_row, most, dim)
        v = rows_of_head(value + text, keys, key_row, most, dim)
    one = tl.arange(0, step)
    left = tokens + (sample * queries + row) * width + one[None, :]
    right = weight + (head * dim + d) * width + one[:, None]
    product = tl.zeros((rows, dim), dtype=tl.float32)
    for _ in range(0, width, step):
        product = tl.dot(tl.load(left, mask=row < queries, other=0.0), tl.load(right), product)
        left += step
        right += step
    if not text_first:
        k = rows_of_head(key + text, keys, key_row, most, dim)
        v = rows_of_head(value + text, keys, key_row, most, dim)
    found = attended_by(product.to(tokens.dtype.element_ty), k, v, keys, scale, most)
    place = attended + ((sample * queries + row) * heads + head) * dim + d
    tl.store(place, found.to(attended.dtype.element_ty), mask=row < queries)


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
        *(tokens, weight, key, value, attended, queries, width, keys, scale_of_scores(dim), *key.stride()[:3]),
        rows=rows, step=step, most=block_of_keys(keys), dim=dim, text_first=text_first,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return attended


def plain_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """What text_attention computes, written down."""
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    return (torch.softmax(scores, dim=-1) @ value).transpose(1, 2).flatten(2)
