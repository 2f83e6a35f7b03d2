"""Which steps of a generation are synchronous, which are silent: known before the first one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["warmup", "steady", "refresh", "final"]


@dataclass(frozen=True)
class Step:
    """What one denoising step does."""

    index: int
    """Logical step, from 0."""

    kind: Kind
    """warmup and refresh are synchronous and renew the layers' context, steady does not; final is a last step that
    would not have been synchronous, and is followed by the exact gather. A rolling refresh is not synchronous: it
    renews latent and noise prediction, and the layers' context is renewed in all steps."""

    synchronous: bool
    """Whether the layers exchange in this step, and every rank gets the exact noise prediction of all slices."""

    counter: int
    """What the UNet's own counter must read: the index, or 0 to run a refresh as the first warm-up step does."""


NO_WARMUP = -1
"""Warm-up of a method whose first steps are like all others."""


def schedule(
    num_inference_steps: int,
    warmup_steps: int,
    refresh_period: int = 0,
    finalizes: bool = False,
    rolling: bool = False,
) -> tuple[Step, ...]:
    """Lay out the steps of a generation.

    Steps 0..warmup_steps are warm-up. After it every refresh_period-th step (0: none) is a refresh, the rest is steady.
    finalizes: the method has an exchange to finalise; a last step that is not synchronous is "final". A synchronous one
    keeps its kind, since nothing but what always follows it is left to do.
    rolling: the layers' context is renewed part by part in every step, so that a refresh is not synchronous.
    warmup_steps=NO_WARMUP is for methods without (one process, tensor parallelism, full_sync): all steps are steady,
    whatever the period, as no context grows old.
    Raises ValueError for a number of steps below 1, a warm-up below -1 or a negative period.
    """
    if num_inference_steps < 1:
        raise ValueError(f"num_inference_steps={num_inference_steps}: a picture takes at least one step")
    if warmup_steps < NO_WARMUP:
        raise ValueError(f"warmup_steps={warmup_steps}: use 0 or more (or {NO_WARMUP} for a method without warm-up)")
    if refresh_period < 0:
        raise ValueError(f"refresh.period={refresh_period}: use 0 or refresh=never for none, or a number of steps")

    steps = [_step(index, warmup_steps, refresh_period, rolling) for index in range(num_inference_steps)]
    if finalizes and not steps[-1].synchronous:
        steps[-1] = replace(steps[-1], kind="final")
    return tuple(steps)


def _step(index: int, warmup_steps: int, refresh_period: int, rolling: bool) -> Step:
    if index <= warmup_steps:
        return Step(index, "warmup", synchronous=True, counter=index)
    if refresh_period and warmup_steps >= 0 and (index - warmup_steps) % refresh_period == 0:
        return Step(index, "refresh", synchronous=not rolling, counter=index if rolling else 0)
    return Step(index, "steady", synchronous=False, counter=index)
