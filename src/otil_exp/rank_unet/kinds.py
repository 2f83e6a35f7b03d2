"""Which steps do the same operations, so that one CUDA graph serves them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from otil_exp.schedule import Step

FIRST = Step(0, "warmup", synchronous=True, counter=0)
"""The first step of a picture."""

AGAIN = Step(1, "refresh", synchronous=True, counter=0)
"""A synchronous step of a picture that has had one."""


def steady(counter: int) -> Step:
    """A step of that counter that is not synchronous."""
    return Step(counter, "steady", synchronous=False, counter=counter)


@dataclass(frozen=True)
class StepKinds:
    """Kinds of steps, numbered from 0."""

    examples: tuple[Step, ...]
    """For each kind, a step of that kind, in the order in which they are captured."""

    of: Callable[[Step], int]
    """Kind of a step."""


ALIKE = StepKinds(examples=(FIRST,), of=lambda step: 0)
"""All steps are of one kind."""


def synchronous_or_silent(warmup_steps: int) -> StepKinds:
    """Kinds of a method whose layers exchange everything, or nothing."""
    return StepKinds(examples=(FIRST, steady(warmup_steps + 1)), of=lambda step: int(step.counter > warmup_steps))


def first_and_later() -> StepKinds:
    """Kinds of a method that keeps the text's keys and values from step 0 on, and else does the same in all steps."""
    return StepKinds(examples=(FIRST, steady(1)), of=lambda step: min(step.counter, 1))


def synchronous_first_and_later(warmup_steps: int) -> StepKinds:
    """Kinds of a method whose layers are a step late (pipelines.py:150-157): synchronous steps, the first one after
    warm-up, in which nothing is queued from the step before, and later ones."""
    first = warmup_steps + 1
    examples = (FIRST, steady(first), steady(first + 1))
    return StepKinds(examples, of=lambda step: min(max(step.counter - warmup_steps, 0), 2))


def synchronous_or_rolling(warmup_steps: int, period: int) -> StepKinds:
    """Kinds of a method whose layers exchange everything, or a period-th part of them, each in its turn."""
    turns = tuple(steady(warmup_steps + 1 + turn) for turn in range(period))

    def of(step: Step) -> int:
        return 0 if step.counter <= warmup_steps else 1 + (step.counter - warmup_steps - 1) % period

    return StepKinds((FIRST, *turns), of)


def first_apart(kinds: StepKinds) -> StepKinds:
    """Kinds of which 0 is that of synchronous steps, where the first of a picture exchanges something else: values,
    not changes."""
    first, *others = kinds.examples
    return StepKinds((first, AGAIN, *others), of=lambda step: kinds.of(step) + (step.index > 0))
