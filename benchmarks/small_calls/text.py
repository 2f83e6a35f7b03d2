"""Attention to the text: alone, with the product that makes its queries, and with the product behind it too."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.small_calls.case import ON_CPU, Candidate, Case, compiled, copies, floor_us, random
from benchmarks.small_calls.kernels.query_attention import plain_attention, query_attention
from benchmarks.small_calls.kernels.text_attention import text_attention

PADDED = 80
"""Keys of a head where the text is folded into weights: 77 and what makes rows of 16 bytes."""


@dataclass(frozen=True)
class Shape:
    count: int
    heads: int
    queries: int
    dim: int = 64
    keys: int = 77

    @property
    def width(self) -> int:
        return self.heads * self.dim


class Text(NamedTuple):
    tokens: Tensor
    """(1, queries, C), as residual."""
    residual: Tensor
    to_query: Tensor
    """(C, C), as to_out."""
    to_out: Tensor
    bias: Tensor
    key: Tensor
    """(1, heads, keys, d): views of one product, as value."""
    value: Tensor

    def query(self) -> Tensor:
        return heads_of(F.linear(self.tokens, self.to_query), self.key.shape[1])


class Alone(NamedTuple):
    query: Tensor
    key: Tensor
    value: Tensor


class Folded(NamedTuple):
    """The products around attention, multiplied into keys and values once a picture."""

    tokens: Tensor
    residual: Tensor
    scores: Tensor
    """(heads * PADDED, C)"""
    absent: Tensor
    """(heads * PADDED,): 0, or a large negative number where there is no key."""
    values: Tensor
    """(C, heads * PADDED)"""
    bias: Tensor


SHAPES = (
    [Shape(60, 4, 40, dim=16), Shape(10, 2, 24, dim=32, keys=5)]
    if ON_CPU
    else [Shape(60, 20, 512), Shape(10, 10, 2048)]
)

ATTENTION_CONFIGS = [(16, 4)] if ON_CPU else [(64, 4), (128, 8), (32, 4), (128, 4)]
"""Queries of a program, warps; the first is also used beside products."""

QUERY_CONFIGS = (
    [(16, 32, 4, 3, False), (32, 64, 4, 3, True)]
    if ON_CPU
    else [
        (128, 64, 8, 4, False),
        (128, 64, 8, 4, True),
        (64, 64, 4, 4, False),
        (64, 64, 4, 4, True),
        (128, 128, 8, 3, True),
        (64, 128, 4, 3, False),
    ]
)
"""Queries of a program, inner step, warps, stages, keys and values first."""

BACKENDS = [SDPBackend.MATH]
if not ON_CPU:
    BACKENDS = [
        SDPBackend.CUDNN_ATTENTION,
        SDPBackend.FLASH_ATTENTION,
        SDPBackend.EFFICIENT_ATTENTION,
        SDPBackend.MATH,
    ]


def heads_of(rows: Tensor, heads: int) -> Tensor:
    """(n, tokens, C) as (n, heads, tokens, d)."""
    return rows.unflatten(-1, (heads, -1)).transpose(1, 2)


def inputs(shape: Shape, matrices: int) -> Callable[[], list[Text]]:
    """matrices: that a call reads besides keys and values: none, the query's, or both."""

    def made() -> list[Text]:
        width, scale = shape.width, shape.width**-0.5
        turns = copies(_text_bytes(shape) + matrices * _matrix_bytes(shape))
        tokens, residual, bias = random(1, shape.queries, width), random(1, shape.queries, width), random(width)
        of_query = [random(width, width, scale=scale) for _ in range(turns if matrices > 0 else 1)]
        of_out = [random(width, width, scale=scale) for _ in range(turns if matrices > 1 else 1)]
        found = []
        for index in range(turns):
            weights = of_query[index % len(of_query)], of_out[index % len(of_out)]
            key, value = random(1, shape.keys, 2 * width).chunk(2, dim=-1)
            key, value = heads_of(key, shape.heads), heads_of(value, shape.heads)
            found.append(Text(tokens, residual, *weights, bias, key, value))
        return found

    return made


def _text_bytes(shape: Shape) -> float:
    return 4.0 * shape.keys * shape.width


def _matrix_bytes(shape: Shape) -> float:
    return 2.0 * shape.width**2


# ---- attention alone


def alone(texts: list[Text]) -> list[Alone]:
    query = texts[0].query()
    return [Alone(query, text.key, text.value) for text in texts]


def side_by_side(texts: list[Text]) -> list[Alone]:
    """Keys and values of a head in one piece each."""
    return [Alone(one.query, one.key.contiguous(), one.value.contiguous()) for one in alone(texts)]


def sdpa(one: Alone, backend: SDPBackend) -> Tensor:
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(*one).transpose(1, 2).flatten(2)


def alone_case(shape: Shape) -> Case:
    def ours(rows: int, warps: int, prepare: Callable[[list[Text]], list[Alone]], family: str) -> Candidate:
        return Candidate(family, lambda one: text_attention(*one, rows, warps), f"{rows} rows, {warps} warps", prepare)

    moved = 4.0 * shape.queries * shape.width + _text_bytes(shape)
    return Case(
        "attention to the text",
        f"{shape.heads} heads, {shape.queries} queries",
        shape.count,
        floor_us(moved, 4.0 * shape.queries * shape.keys * shape.width),
        inputs(shape, 0),
        lambda text: plain_attention(*(one.double() for one in alone([text])[0])),
        (
            *(
                Candidate(f"SDPA, {backend.name.lower()}", lambda one, b=backend: sdpa(one, b), prepare=alone)
                for backend in BACKENDS
            ),
            *(ours(*config, alone, "ours") for config in ATTENTION_CONFIGS),
            *(ours(*config, side_by_side, "ours, heads in one piece") for config in ATTENTION_CONFIGS[:2]),
            Candidate("softmax(QK)V, compiled", compiled(lambda one: plain_attention(*one)), prepare=alone),
        ),
    )


# ---- with the product that makes the queries


def product_then(text: Text, attend: Callable[[Alone], Tensor]) -> Tensor:
    return attend(Alone(text.query(), text.key, text.value))


def one_kernel(text: Text, config: tuple[int, int, int, int, bool] = QUERY_CONFIGS[0]) -> Tensor:
    return query_attention(text.tokens, text.to_query, text.key, text.value, *config)


def best_sdpa(one: Alone) -> Tensor:
    return sdpa(one, BACKENDS[0])


def our_attention(one: Alone) -> Tensor:
    return text_attention(*one, *ATTENTION_CONFIGS[0])


def query_case(shape: Shape) -> Case:
    moved = 4.0 * shape.queries * shape.width + _text_bytes(shape) + _matrix_bytes(shape)
    return Case(
        "query's product, attention to the text",
        f"{shape.heads} heads, {shape.queries} queries",
        shape.count,
        floor_us(moved, shape.queries * (2.0 * shape.width**2 + 4.0 * shape.keys * shape.width)),
        inputs(shape, 1),
        _attended_exactly,
        (
            Candidate("cuBLAS, cuDNN", lambda text: product_then(text, best_sdpa)),
            Candidate("cuBLAS, our attention", lambda text: product_then(text, our_attention)),
            *(
                Candidate("one kernel of ours", lambda text, c=config: one_kernel(text, c), _words(*config))
                for config in QUERY_CONFIGS
            ),
        ),
    )


def _attended_exactly(text: Text) -> Tensor:
    text = Text(*(one.double() for one in text))
    return plain_attention(text.query(), text.key, text.value)


def _words(rows: int, step: int, warps: int, stages: int, text_first: bool) -> str:
    return f"{rows} rows, steps of {step}, {warps} warps, {stages} stages{', text first' if text_first else ''}"


# ---- with both products


def folded(texts: list[Text]) -> list[Folded]:
    return [_folded(text) for text in texts]


def _folded(text: Text) -> Folded:
    heads, keys, dim = text.key.shape[1:]
    to_query = text.to_query.float().unflatten(0, (heads, dim))  # (heads, d, C)
    to_out = text.to_out.float().unflatten(1, (heads, dim)).permute(1, 2, 0)  # (heads, d, C)
    scores, values = text.key[0].float() @ to_query / math.sqrt(dim), text.value[0].float() @ to_out
    scores, values = (F.pad(one, (0, 0, 0, PADDED - keys)).flatten(0, 1).half() for one in (scores, values))
    absent = torch.where(torch.arange(PADDED, device=scores.device) < keys, 0.0, -30000.0).half().repeat(heads)
    return Folded(text.tokens, text.residual, scores, absent, values.t().contiguous(), text.bias)


def attended_folded(one: Folded) -> Tensor:
    scores = F.linear(one.tokens, one.scores, one.absent).unflatten(-1, (-1, PADDED))
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).half().flatten(2)
    return F.linear(weights, one.values, one.bias) + one.residual


def both_case(shape: Shape) -> Case:
    def out(text: Text, attended: Tensor) -> Tensor:
        return F.linear(attended, text.to_out, text.bias) + text.residual

    moved = 6.0 * shape.queries * shape.width + _text_bytes(shape) + 2 * _matrix_bytes(shape)
    return Case(
        "both products, attention, residual",
        f"{shape.heads} heads, {shape.queries} queries",
        shape.count,
        floor_us(moved, shape.queries * (4.0 * shape.width**2 + 4.0 * shape.keys * shape.width)),
        inputs(shape, 2),
        lambda text: out(Text(*(one.double() for one in text)), _attended_exactly(text)),
        (
            Candidate("cuBLAS, cuDNN, cuBLAS", lambda text: out(text, product_then(text, best_sdpa))),
            Candidate("one kernel of ours, cuBLAS", lambda text: out(text, one_kernel(text))),
            Candidate("text folded into weights, compiled", compiled(attended_folded), prepare=folded),
        ),
    )


def cases() -> list[Case]:
    """Largest predicted gain first."""
    return [case(shape) for case in (query_case, alone_case, both_case) for shape in SHAPES]
