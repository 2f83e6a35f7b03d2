"""Which steps of a run are timed: those of one machine, and warm."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from otil_exp.run_folder.steps import StepRow, Steps

Attempt = dict[str, Any]
"""One of `attempts` in record.json (otil_exp.run.attempts)."""

_NOT_MACHINE = ("started", "ended", "prompts", "host")
"""What may differ between attempts whose times can be averaged: nodes of a cluster are alike but for their names."""


def timed_rows(rows: Sequence[StepRow], warm: bool, attempts: Sequence[Attempt] = ()) -> Steps:
    """Rank 0's rows whose times count: of one machine, and warm.

    Of a run that went on elsewhere, those of the machine that made most pictures. If no untimed images ran before
    (`warm`), each attempt's first picture is left out where there are others, as it pays for caches.
    """
    steps = Steps.of(rows)
    own = steps.where(steps.column("rank") == 0)
    if warm or not own:
        return own
    made = [attempt["prompts"] for attempt in timed_attempts(attempts)]
    if not made:
        pictures = own.pictures()
        return own.where(pictures > pictures.min()) or own
    after_first = [index for prompts in made for index in prompts[1:]]
    counted = after_first or [index for prompts in made for index in prompts]
    return own.where(np.isin(own.column("prompt"), counted) & (own.column("repeat") == 0))


def timed_attempts(attempts: Iterable[Attempt]) -> list[Attempt]:
    """The attempts on the machine that made most pictures, the latest one of several."""
    machines: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        if attempt["prompts"]:
            machines[_machine(attempt)].append(attempt)
    return max(reversed(machines.values()), key=lambda own: sum(len(one["prompts"]) for one in own), default=[])


def machines(attempts: Iterable[Attempt]) -> int:
    """How many different machines made pictures of a run."""
    return len({_machine(attempt) for attempt in attempts if attempt["prompts"]})


def _machine(attempt: Attempt) -> str:
    return json.dumps({key: value for key, value in attempt.items() if key not in _NOT_MACHINE}, sort_keys=True)
