"""What crosses between the stages of a UNet: its segments, and the tensors that one hands to another. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from otil_exp.stages.tape import Unit


@dataclass(frozen=True)
class Segment:
    """Units start..stop of the tape (stop without), which run one after the other on one stage."""

    start: int
    stop: int
    stage: int

    def takes(self, units: Sequence[Unit]) -> tuple[int, ...]:
        """Units before it whose skip it takes, in the tape's order."""
        return tuple(p for p, q in skip_pairs(units) if p < self.start <= q < self.stop)

    def leaves(self, units: Sequence[Unit]) -> tuple[int, ...]:
        """Its own units whose skip is taken after it, in the tape's order."""
        return tuple(p for p, q in skip_pairs(units) if self.start <= p < self.stop <= q)


@dataclass(frozen=True)
class Wire:
    """What one segment sends to another stage's segment, once a run."""

    source: int
    target: int
    """Indices of the segments."""

    state: bool
    """Whether the hidden state crosses (with its residual inside a transformer)."""

    skips: tuple[int, ...] = ()
    """Units whose skip crosses as well."""


def skip_pairs(units: Sequence[Unit]) -> tuple[tuple[int, int], ...]:
    """(unit that leaves a skip, unit that takes it), in the order of the former."""
    waiting: list[int] = []
    pairs = []
    for index, unit in enumerate(units):
        if unit.pops:
            pairs.append((waiting.pop(), index))
        if unit.pushes:
            waiting.append(index)
    return tuple(sorted(pairs))


def known_states(units: Sequence[Unit], segments: Sequence[Segment], index: int) -> dict[int, int]:
    """Skips that are the state at which this segment, or an earlier one of its stage, begins: unit to segment."""
    own = [i for i in range(index + 1) if segments[i].stage == segments[index].stage and segments[i].start]
    return {segments[i].start - 1: i for i in own if units[segments[i].start - 1].pushes}


def wires(units: Sequence[Unit], segments: Sequence[Segment]) -> tuple[Wire, ...]:
    """All that crosses between stages, by target. A skip that is the state at a segment's start is not sent twice."""
    found = []
    for target, segment in enumerate(segments):
        known = known_states(units, segments, target)
        skips = [skip for skip in segment.takes(units) if skip not in known]
        for source, other in enumerate(segments[:target]):
            state = source == target - 1
            own = tuple(skip for skip in skips if other.start <= skip < other.stop)
            if other.stage != segment.stage and (state or own):
                found.append(Wire(source, target, state, own))
    return tuple(found)


def crossing_elements(units: Sequence[Unit], segments: Sequence[Segment], wire: Wire) -> int:
    """Elements a wire carries for one sample."""
    state = units[segments[wire.source].stop - 1].crossing if wire.state else 0
    return state + sum(units[skip].elements for skip in wire.skips)
