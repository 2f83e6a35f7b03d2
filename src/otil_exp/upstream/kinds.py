"""Which steps do the same operations, so that one CUDA graph serves them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from otil_exp.choices import Parallelism, SplitScheme
from otil_exp.upstream.inputs import split_dim


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


def step_kinds(
    parallelism: Parallelism,
    slices: int,
    warmup_steps: int,
    split_scheme: SplitScheme | None,
    stale_sums: bool = False,
) -> StepKinds:
    """Kinds of a method's steps (pipelines.py:150-157; pp :104-109; naive :83-85).

    patch: synchronous steps, the first after warm-up (nothing is queued from the step before), and later ones.
    tensor with stale sums: synchronous steps and later ones. naive_patch that alternates: rows and columns.
    Others: one.
    """
    if slices > 1 and parallelism is Parallelism.patch:
        first = warmup_steps + 1
        return StepKinds(examples=(0, first, first + 1), of=lambda counter: min(max(counter - warmup_steps, 0), 2))
    if slices > 1 and stale_sums:
        return StepKinds(examples=(0, warmup_steps + 1), of=lambda counter: int(counter > warmup_steps))
    if slices > 1 and split_scheme is SplitScheme.alternate:
        return StepKinds(examples=(0, 1), of=lambda counter: split_dim(SplitScheme.alternate, counter) - 2)
    return ALIKE
