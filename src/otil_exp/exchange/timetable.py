"""Who computes what in which step, and what travels when, for a UNet cut into stages: known before a picture begins.

Pure data: for each step and each stage (a rank of one half of the batch) a list of operations, done in order. A
latent's number is its step's. `fold_timetable` is ours, `lockstep_timetable` AsyncDiff's.

fold, two stages: A runs its way down on latent t, gives what it has there, takes what the inner part made of latent
t - 1, and runs its way up; B computes on latent t meanwhile. What is mixed in is one step old.
lockstep, two stages: both compute at once, B on what A gave after the step before; then they swap. Two steps old.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from otil_exp.schedule import Step

PREDICTION = -1
"""Segment that stands for the finished noise prediction, where that travels."""


@dataclass(frozen=True)
class Message:
    """What one segment sends to another of a different stage, made of one latent."""

    source: int
    target: int
    """Segments; PREDICTION twice for a noise prediction."""

    giver: int
    taker: int
    """Stages."""

    made: int
    """The latent it was made of; of a prediction, the step it is for."""


@dataclass(frozen=True)
class Compute:
    """A segment is computed."""

    segment: int
    latent: int
    """The latent (or what was made of it) that it works on."""

    told: int
    """The step whose timestep it is told: the latent's own, but for lockstep."""

    state: tuple[int, ...] = ()
    """Of which latents the state that it continues from is known, rising; the last one is it, or it is forecast from
    them. Empty: it begins at the latent itself, or at what its own stage has just computed."""


@dataclass(frozen=True)
class Swap:
    """Messages that are sent and received at once, in no order; what is taken is there afterwards."""

    gives: tuple[Message, ...] = ()
    takes: tuple[Message, ...] = ()


Operation = Compute | Swap
Timetable = tuple[tuple[tuple[Operation, ...], ...], ...]
"""By step, then by stage: what it does, in order."""

KNOWN = 3
"""States that are kept for forecasts: a parabola needs three."""


def fold_timetable(steps: Sequence[Step], stages: int, every: int = 1) -> Timetable:
    """Shifted phases of nested stages; segments 0 .. 2 stages - 2, of which stage s has s and its mirror image.

    Synchronous steps relay: down through all stages and up again. After them the inner part gets every every-th latent
    and has every periods for it; a latent whose result would come too late is not begun. A stage's result waits for the
    next meeting of the two stages (a swap), so that both compute in between. Each further stage adds a meeting.
    """
    planner = _Fold(steps, stages, every)
    return tuple(planner.step(step) for step in steps)


class _Fold:
    """Lays out one step after the other; `between` stages s and s + 1 lies what has not been taken yet."""

    def __init__(self, steps: Sequence[Step], stages: int, every: int) -> None:
        if stages < 2 or every < 1:
            raise ValueError(f"stages={stages}, every={every}: use at least two stages and every=1")
        self.stages, self.every, self.last = stages, every, len(steps) - 1
        self.synchronous = [step.index for step in steps if step.synchronous]
        self.begun = self._begun(steps)
        self.between: list[int | None] = [None] * (stages - 1)
        self.known: list[tuple[int, ...]] = [()] * (stages - 1)

    def _begun(self, steps: Sequence[Step]) -> list[int]:
        """Latents that the first inner stage gets outside synchronous steps."""
        begun: list[int] = []
        newest = -self.every
        for step in steps:
            if step.synchronous:
                newest = step.index + 1 - self.every
            elif step.index >= newest + self.every:
                ends = [other for other in self.synchronous if other > step.index] or [self.last]
                if step.index + self.every <= ends[0]:
                    begun.append(step.index)
                    newest = step.index
        return begun

    def step(self, step: Step) -> tuple[tuple[Operation, ...], ...]:
        now = step.index
        self.done: list[list[Operation]] = [[] for _ in range(self.stages)]
        if step.synchronous:
            self._relay(now, 0)
            return tuple(tuple(one) for one in self.done)
        self._run(0, now)
        begun = now in self.begun
        waiting = self.between[0]
        due = waiting is not None and waiting + self.every <= now
        if begun or due:
            self._meet(0, now if begun else None)
        self._run(2 * self.stages - 2, now, self.known[0])
        if begun:
            self._inner(1, now)
        return tuple(tuple(one) for one in self.done)

    def _relay(self, now: int, stage: int) -> None:
        """Down from a stage to the innermost one and up again, all on one latent."""
        self._run(stage, now)
        if stage == self.stages - 1:
            return
        self._meet(stage, now)
        self._relay(now, stage + 1)
        self._meet(stage, None)
        self._run(2 * self.stages - 2 - stage, now, (now,))

    def _inner(self, stage: int, now: int) -> None:
        """An inner stage works on a latent, with what the stage below it made of the one before."""
        self._run(stage, now)
        if stage == self.stages - 1:
            return
        passes = self._goes_on(stage, now)
        self._meet(stage, now if passes else None)
        self._run(2 * self.stages - 2 - stage, now, self.known[stage])
        if passes:
            self._inner(stage + 1, now)

    def _goes_on(self, stage: int, now: int) -> bool:
        """Whether the stage will meet the one below it again: only then is what that one makes of any use."""
        later = [one for one in self.begun if one > now][stage - 1 :]
        return bool(later) or any(one > now for one in self.synchronous)

    def _meet(self, stage: int, gives: int | None) -> None:
        """A stage and the one below it swap: what is waiting goes up, the state made of latent `gives` goes down."""
        up, down = 2 * self.stages - 3 - stage, stage
        waiting = self.between[stage]
        ups = () if waiting is None else (Message(up, up + 1, stage + 1, stage, waiting),)
        downs = () if gives is None else (Message(down, down + 1, stage, stage + 1, gives),)
        if ups or downs:
            self.done[stage].append(Swap(gives=downs, takes=ups))
            self.done[stage + 1].append(Swap(gives=ups, takes=downs))
        if waiting is not None:
            self.known[stage] = (*self.known[stage], waiting)[-KNOWN:]
        self.between[stage] = gives

    def _run(self, segment: int, now: int, state: tuple[int, ...] = ()) -> None:
        stage = min(segment, 2 * self.stages - 2 - segment)
        came = (now,) if segment and not state else state
        self.done[stage].append(Compute(segment, now, now, came))


def lockstep_timetable(
    steps: Sequence[Step], components: int, links: Sequence[tuple[int, int]], stride: int = 1
) -> Timetable:
    """AsyncDiff: all components compute at once on what was swapped after the round before.

    Segments 0 .. components: the outer component's way down, the others in order, the outer component's way up; segment
    k is on stage k modulo components. links: (source, target) segments between which something crosses. stride=2: a
    round is two steps; stage `components`, one more rank, is a second outer component, which is told the first step of
    a round, all others the second (async_sd.py). A round that a synchronous step or the end would cut is one step long.
    """
    if stride not in (1, 2):
        raise ValueError(f"preset.stride={stride}: use 1, or 2 with one more rank a half of the batch")
    planner = _Lockstep(steps, components, links, stride)
    return tuple(planner.step(step) for step in steps)


class _Lockstep:
    def __init__(self, steps: Sequence[Step], components: int, links: Sequence[tuple[int, int]], stride: int) -> None:
        self.steps, self.components, self.links, self.stride = steps, components, links, stride
        self.outer = [0, components] if stride == 2 else [0]
        self.newest = -1
        self.paired: int | None = None

    def step(self, step: Step) -> tuple[tuple[Operation, ...], ...]:
        now = step.index
        self.done: list[list[Operation]] = [[] for _ in range(self.components + self.stride - 1)]
        if step.synchronous:
            self._relay(now)
        elif self.paired != now:
            self._round(now)
        return tuple(tuple(one) for one in self.done)

    def _steady(self, index: int) -> bool:
        return index < len(self.steps) and not self.steps[index].synchronous

    def _messages(self, source: int, made: int) -> tuple[Message, ...]:
        """All that a segment's result is needed for elsewhere; the last state goes to every outer component."""
        found = []
        for giver, target in self.links:
            if giver == source:
                takers = self.outer if target == self.components else [target]
                found += [Message(source, target, source % self.components, taker, made) for taker in takers]
        return tuple(found)

    def _relay(self, now: int) -> None:
        for segment in range(self.components + 1):
            stage = segment % self.components
            takes = self._into(segment, now)
            if takes:
                self.done[stage].append(Swap(takes=takes))
            self._run(stage, segment, now, now, now)
            gives = self._messages(segment, now)
            if gives:
                self.done[stage].append(Swap(gives=gives))
        if self.stride == 2:
            state = tuple(one for one in self._messages(self.components - 1, now) if one.taker == self.components)
            self.done[self.components].append(Swap(takes=state))
            self._swap((Message(PREDICTION, PREDICTION, 0, self.components, now),))
        self.newest = now

    def _into(self, segment: int, made: int) -> tuple[Message, ...]:
        """What a segment needs from other stages, of the first outer component where there are two."""
        given = [one for source in range(segment) for one in self._messages(source, made)]
        return tuple(one for one in given if one.target == segment and one.taker == segment % self.components)

    def _round(self, now: int) -> None:
        """All components at once, then a swap; of a pair of steps, the second is predicted in the first."""
        pair = self.stride == 2 and self._steady(now + 1)
        self.paired = now + 1 if pair else None
        told = now + 1 if pair else now
        for stage in [*range(self.components), *self.outer[1:]] if pair else range(self.components):
            own = [0, self.components] if stage in self.outer else [stage]
            for segment in own:
                self._run(stage, segment, now, now if stage == self.components else told, self.newest)
        messages = (
            []
            if not self._steady(told + 1)
            else [one for k in range(self.components) for one in self._messages(k, now)]
        )
        if self.stride == 2:
            messages.append(Message(PREDICTION, PREDICTION, 0, self.components, told))
        if pair:
            messages.append(Message(PREDICTION, PREDICTION, self.components, 0, now))
        self._swap(tuple(messages))
        self.newest = now

    def _run(self, stage: int, segment: int, latent: int, told: int, state: int) -> None:
        self.done[stage].append(Compute(segment, latent, told, (state,) if segment else ()))

    def _swap(self, messages: tuple[Message, ...]) -> None:
        """Everyone gives and takes what is theirs, at once."""
        for stage, done in enumerate(self.done):
            gives = tuple(one for one in messages if one.giver == stage)
            takes = tuple(one for one in messages if one.taker == stage)
            if gives or takes:
                done.append(Swap(gives, takes))


def ages(timetable: Timetable) -> tuple[int, ...]:
    """How many steps old the oldest latent is that a step's prediction rests on, by step. Follows the data."""
    last = max(one.segment for step in timetable for done in step for one in done if isinstance(one, Compute))
    oldest: dict[tuple[int, int], int] = {}
    predicted: dict[int, int] = {}
    for step in timetable:
        runs = sorted((one for done in step for one in done if isinstance(one, Compute)), key=lambda run: run.segment)
        for run in runs:
            below = oldest[run.segment - 1, run.state[-1]] if run.state else run.latent
            oldest[run.segment, run.latent] = min(run.latent, below)
            if run.segment == last:
                predicted[run.told] = oldest[run.segment, run.latent]
    return tuple(now - predicted[now] for now in range(len(timetable)))
