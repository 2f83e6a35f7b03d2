"""Which steps do the same operations, so that one CUDA graph serves them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class StepKinds:
    """Kinds of steps, numbered from 0."""

    examples: tuple[int, ...]
    """For each kind, a step counter of that kind, in the order in which they are captured."""

    of: Callable[[int], int]
    """Kind of a step, given its counter."""


ALIKE = StepKinds(examples=(0,), of=lambda counter: 0)
"""All steps are of one kind."""


def synchronous_or_silent(warmup_steps: int) -> StepKinds:
    """Kinds of a method whose layers exchange everything, or nothing."""
    return StepKinds(examples=(0, warmup_steps + 1), of=lambda counter: int(counter > warmup_steps))


def first_and_later() -> StepKinds:
    """Kinds of a method that keeps the text's keys and values from step 0 on, and else does the same in all steps."""
    return StepKinds(examples=(0, 1), of=lambda counter: min(counter, 1))


def synchronous_first_and_later(warmup_steps: int) -> StepKinds:
    """Kinds of a method whose layers are a step late (pipelines.py:150-157): synchronous steps, the first one after
    warm-up, in which nothing is queued from the step before, and later ones."""
    first = warmup_steps + 1
    return StepKinds(examples=(0, first, first + 1), of=lambda counter: min(max(counter - warmup_steps, 0), 2))
