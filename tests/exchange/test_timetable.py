"""Timetable of stages: worked out by hand for few steps, and by a machine that passes messages for many."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import pytest

from otil_exp.exchange.timetable import (
    PREDICTION,
    Compute,
    Message,
    Swap,
    Timetable,
    ages,
    fold_timetable,
    lockstep_timetable,
)
from otil_exp.schedule import schedule

CHAIN = {2: [(0, 1), (1, 2)], 3: [(0, 1), (1, 2), (2, 3)], 4: [(0, 1), (1, 2), (2, 3), (3, 4)]}


def played(phases: Timetable) -> list[Message]:
    """Play the phases: stages do their operations in order, and a take waits until it was given. All must end."""
    todo = [deque(op for step in phases for op in step[stage]) for stage in range(len(phases[0]))]
    given: set[Message] = set()
    taken: list[Message] = []
    started = [False] * len(todo)
    moved = True
    while moved:
        moved = False
        for stage, operations in enumerate(todo):
            while operations:
                now = operations[0]
                if isinstance(now, Swap):
                    if not started[stage]:
                        given.update(now.gives)
                        started[stage] = moved = True
                    if not given.issuperset(now.takes):
                        break
                    taken += now.takes
                    started[stage] = False
                operations.popleft()
                moved = True
    assert not any(todo), "stages wait for each other"
    assert len(taken) == len(set(taken))
    assert set(taken) == given, "something was given and never taken"
    return taken


def pair_orders(phases: Timetable) -> dict[tuple[int, int], list[frozenset[Message]]]:
    """For each stage and peer, in order, what is swapped: NCCL needs both ends to agree."""
    orders: dict[tuple[int, int], list[frozenset[Message]]] = {}
    for step in phases:
        for stage, operations in enumerate(step):
            for one in operations:
                if isinstance(one, Swap):
                    for peer in {m.giver for m in one.takes} | {m.taker for m in one.gives}:
                        both = frozenset(m for m in (*one.gives, *one.takes) if peer in (m.giver, m.taker))
                        orders.setdefault((stage, peer), []).append(both)
    return orders


def test_two_stages_by_hand() -> None:
    """One synchronous step, three steady ones. A: down, swap, up; B computes what A gave, given at the next swap."""
    warmup, first, second, last = fold_timetable(schedule(4, 0), 2)

    def down(made: int) -> Message:
        return Message(0, 1, 0, 1, made)

    def up(made: int) -> Message:
        return Message(1, 2, 1, 0, made)

    assert warmup[0] == (Compute(0, 0, 0), Swap((down(0),)), Swap((), (up(0),)), Compute(2, 0, 0, (0,)))
    assert warmup[1] == (Swap((), (down(0),)), Compute(1, 0, 0, (0,)), Swap((up(0),)))
    assert first[0] == (Compute(0, 1, 1), Swap((down(1),)), Compute(2, 1, 1, (0,)))
    assert first[1] == (Swap((), (down(1),)), Compute(1, 1, 1, (1,)))
    assert second[0] == (Compute(0, 2, 2), Swap((down(2),), (up(1),)), Compute(2, 2, 2, (0, 1)))
    assert second[1] == (Swap((up(1),), (down(2),)), Compute(1, 2, 2, (2,)))
    assert last[0] == (Compute(0, 3, 3), Swap((), (up(2),)), Compute(2, 3, 3, (0, 1, 2)))  # nothing is begun for later
    assert last[1] == (Swap((up(2),)),)


def test_shifted_phases_are_one_step_old_and_one_more_a_stage() -> None:
    """Synchronous to step 2; the first steady steps still live on what step 2 left."""
    assert ages(fold_timetable(schedule(8, 2), 2)) == (0, 0, 0, 1, 1, 1, 1, 1)
    assert ages(fold_timetable(schedule(8, 2), 3)) == (0, 0, 0, 1, 2, 2, 2, 2)
    assert ages(fold_timetable(schedule(8, 2), 4)) == (0, 0, 0, 1, 2, 3, 3, 3)


def test_lockstep_is_as_many_steps_old_as_there_are_components() -> None:
    """AsyncDiff: two steps at two components, three at three, four at four."""
    assert ages(lockstep_timetable(schedule(8, 1), 2, CHAIN[2])) == (0, 0, 1, 2, 2, 2, 2, 2)
    assert ages(lockstep_timetable(schedule(8, 1), 3, CHAIN[3])) == (0, 0, 1, 2, 3, 3, 3, 3)
    assert ages(lockstep_timetable(schedule(9, 1), 4, CHAIN[4])) == (0, 0, 1, 2, 3, 4, 4, 4, 4)


def test_every_second_latent_is_two_or_three_steps_old() -> None:
    assert ages(fold_timetable(schedule(9, 0), 2, every=2)) == (0, 1, 2, 2, 3, 2, 3, 2, 3)


def test_a_refresh_is_of_now() -> None:
    assert ages(fold_timetable(schedule(7, 0, 3), 2)) == (0, 1, 1, 0, 1, 1, 0)


def test_an_inner_part_for_every_second_latent_by_hand() -> None:
    """Warm-up to step 1, ten steps: latents 2, 4, 6 are begun; 8 would be used after the end, at 10."""
    phases = fold_timetable(schedule(10, 1), 2, every=2)
    begun = [one.latent for step in phases for one in step[1] if isinstance(one, Compute)]
    assert begun == [0, 1, 2, 4, 6]
    mixed = [one.state[-1] for step in phases for one in step[0] if isinstance(one, Compute) and one.segment == 2]
    assert mixed == [0, 1, 1, 1, 2, 2, 4, 4, 6, 6]


def test_what_would_come_after_a_refresh_is_not_begun() -> None:
    """Refresh at 5 (period 4 after warm-up to 1), every=3: latent 2 is taken at 5; 6 would be at 9, which refreshes."""
    phases = fold_timetable(schedule(12, 1, 4), 2, every=3)
    begun = [one.latent for step in phases for one in step[1] if isinstance(one, Compute)]
    assert begun == [0, 1, 2, 5, 6, 9]
    mixed = [one.state for step in phases for one in step[0] if isinstance(one, Compute) and one.segment == 2]
    assert mixed[5] == (5,)
    assert mixed[6] == (1, 2, 5)


@pytest.mark.parametrize("refresh", [0, 1, 3])
@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("warmup", [0, 3, 10])
def test_folds_end_with_nothing_pending(stages: int, every: int, refresh: int, warmup: int) -> None:
    phases = fold_timetable(schedule(11, warmup, refresh), stages, every)
    played(phases)
    orders = pair_orders(phases)
    assert all(orders[pair] == orders[pair[::-1]] for pair in orders)
    for step in phases:  # the outermost stage predicts every step, of its own latent
        assert [one.latent for one in step[0] if isinstance(one, Compute)] == [phases.index(step)] * 2


@pytest.mark.parametrize("refresh", [0, 3, 4])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("components", [2, 3, 4])
@pytest.mark.parametrize("warmup", [0, 2, 10])
def test_lockstep_ends_with_nothing_pending(components: int, stride: int, refresh: int, warmup: int) -> None:
    phases = lockstep_timetable(schedule(11, warmup, refresh), components, CHAIN[components], stride)
    played(phases)
    orders = pair_orders(phases)
    assert all(orders[pair] == orders[pair[::-1]] for pair in orders)


def test_a_round_of_two_steps_by_hand() -> None:
    """Two components, stride 2: rank 0 and the inner one are told step 2, the third rank step 1, all on latent 1."""
    phases = lockstep_timetable(schedule(3, 0), 2, CHAIN[2], stride=2)
    first = phases[1]
    assert [(one.segment, one.latent, one.told) for one in first[0] if isinstance(one, Compute)] == [
        (0, 1, 2),
        (2, 1, 2),
    ]
    assert [(one.segment, one.latent, one.told) for one in first[1] if isinstance(one, Compute)] == [(1, 1, 2)]
    assert [(one.segment, one.latent, one.told) for one in first[2] if isinstance(one, Compute)] == [
        (0, 1, 1),
        (2, 1, 1),
    ]
    (swap,) = [one for one in first[0] if isinstance(one, Swap)]
    assert swap.gives == (Message(PREDICTION, PREDICTION, 0, 2, 2),)
    assert swap.takes == (Message(PREDICTION, PREDICTION, 2, 0, 1),)
    assert phases[2] == ((), (), ())


def test_forecasts_have_rising_states() -> None:
    for step in fold_timetable(schedule(20, 4, 5), 3, every=2):
        for one in (one for stage in step for one in stage if isinstance(one, Compute)):
            assert all(a < b for a, b in pairwise(one.state))


def test_wrong_settings() -> None:
    with pytest.raises(ValueError, match="preset.stride=3: use 1, or 2"):
        lockstep_timetable(schedule(4, 0), 2, CHAIN[2], 3)
    with pytest.raises(ValueError, match="at least two stages"):
        fold_timetable(schedule(4, 0), 1)
