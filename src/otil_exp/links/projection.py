"""How long a step would take on another link, from how long it took on one: a projection, never a measurement.

A step is its computation, what it waits for, and what travels behind it. The computation is the measured step less what
the measured link cost it, and stays; the messages take what the curve of the other link says. What travels behind
computation costs only where it is longer: messages of a rank go one after the other, the i-th of n is taken to start
when i / n of the step has passed, and the step ends when the last has arrived, if it is replayed as a CUDA graph, which
ends with all its streams joined; else they may go on into the next step. Not modelled: copies that take memory's time
from the computation, ranks that differ, other traffic on the link.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor

from otil_exp.links.link import Links
from otil_exp.run_folder.messages import MessageRow

HALVINGS = 60
"""Of the interval in which the computation is sought: below the last digit of a float."""


def step_s(compute_s: float, messages: Sequence[MessageRow], links: Links, *, joined: bool) -> float:
    """Seconds of a step with this computation (seconds) and these messages on these links.

    joined: whether what travels behind the computation is awaited at the end of the step itself.
    """
    waited, behind = _waited_s(messages, links), _behind_s(messages, links)
    if not behind:
        return compute_s + waited
    if not joined:
        return waited + max(compute_s, sum(behind))
    busy, arrived = compute_s + waited, 0.0
    for number, seconds in enumerate(behind, 1):
        arrived = max(arrived, number / len(behind) * busy) + seconds
    return max(busy, arrived)


def compute_s(measured_s: float, messages: Sequence[MessageRow], links: Links, *, joined: bool) -> float:
    """Seconds of computation with which `step_s` on these links gives a measured step; 0 where its messages alone
    would take longer."""
    low, high = 0.0, measured_s
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if step_s(middle, messages, links, joined=joined) <= measured_s:
            low = middle
        else:
            high = middle
    return low


def _waited_s(messages: Sequence[MessageRow], links: Links) -> float:
    return sum(one.per_step * _seconds(one, links) for one in messages if one.waits)


def _behind_s(messages: Sequence[MessageRow], links: Links) -> list[float]:
    """Of every message that is not waited for; one that only some steps have counts as a part of itself."""
    found: list[float] = []
    for one in messages:
        if not one.waits:
            whole = floor(one.per_step)
            found += [_seconds(one, links)] * whole
            found += [(one.per_step - whole) * _seconds(one, links)] if one.per_step > whole else []
    return found


def _seconds(one: MessageRow, links: Links) -> float:
    return links.seconds(one.operation, one.bytes, one.ranks)
