"""A call of a rank's step, and the ways to compute it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ON_CPU = not torch.cuda.is_available()
"""Then shapes are tiny, Triton interprets, and times mean nothing."""

DEVICE = torch.device("cpu" if ON_CPU else "cuda")

MEMORY_TB_S, FP16_TFLOP_S = 4.3, 716.0
"""What an H200 was measured to do."""

ROTATED_BYTES = 160e6
"""Of weights that calls take in turn: several times the cache, so that a call finds its own in memory, as in a step."""


@dataclass(frozen=True)
class Candidate:
    """One way. Its family's fastest config is the family's row in the table."""

    family: str
    call: Callable[[Any], Tensor]
    """From one of the prepared inputs to the result."""
    config: str = ""
    prepare: Callable[[list[Any]], Sequence[Any]] = list
    """What happens once a picture, or before this call, and is not timed."""


@dataclass(frozen=True)
class Case:
    part: str
    what: str
    count: int
    """Of a step."""
    floor_us: float
    inputs: Callable[[], list[Any]]
    """As many as calls take in turn; the first is what errors are taken of."""
    expected: Callable[[Any], Tensor]
    """In float64, from the first of the inputs."""
    candidates: tuple[Candidate, ...]

    def name_of(self, candidate: Candidate) -> str:
        """Unlike any other's."""
        return " | ".join([self.part, self.what, candidate.family, candidate.config])


def floor_us(moved: float, flops: float) -> float:
    """Microseconds below which no kernel can be. moved: bytes, each read or written once."""
    return max(moved / MEMORY_TB_S, flops / FP16_TFLOP_S) / 1e6


def copies(rotated: float) -> int:
    """How many inputs take turns, of which so many bytes each lie in memory."""
    return 2 if ON_CPU else min(400, max(8, round(ROTATED_BYTES / rotated)))


def random(*shape: int, scale: float = 1.0) -> Tensor:
    """fp16, normal, of a standard deviation."""
    return (torch.randn(*shape, device=DEVICE) * scale).half()


def compiled(call: Callable[[Any], Tensor]) -> Callable[[Any], Tensor]:
    """By Inductor as a rank's step is, without its own CUDA graphs and without autotuning."""
    return torch.compile(call, dynamic=False, fullgraph=True, backend="aot_eager" if ON_CPU else "inductor")
