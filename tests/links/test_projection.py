"""Steps on other links, worked out on paper: what is waited for adds up, what travels behind computation may hide."""

from __future__ import annotations

import pytest

from otil_exp.links import Curve, Links
from otil_exp.links.projection import compute_s, step_s
from otil_exp.run_folder.messages import MessageRow

MS, MB = 1e-3, 1_000_000


def links(latency_s: float, bytes_per_s: float) -> Links:
    points = ((0, latency_s), (MB, latency_s + MB / bytes_per_s))
    return Links(name="l", source="", date="", measured=False, curves=(Curve("all_gather", 2, points),))


def message(size: int, per_step: float = 1, *, waits: bool) -> MessageRow:
    return MessageRow("steady", "all_gather", 2, size, waits, per_step)


SLOW = links(0.0, 1e9)
"""1 MB takes 1 ms."""


def test_what_is_waited_for_is_added() -> None:
    """20 ms of computation, three messages of 1 MB and 2 ms latency: 20 + 3 * (2 + 1)."""
    assert step_s(20 * MS, [message(MB, 3, waits=True)], links(2 * MS, 1e9), joined=True) == pytest.approx(29 * MS)


def test_what_travels_behind_computation_and_is_shorter_costs_nothing_where_it_may_go_on() -> None:
    assert step_s(20 * MS, [message(MB, 4, waits=False)], SLOW, joined=False) == pytest.approx(20 * MS)
    assert step_s(3 * MS, [message(MB, 4, waits=False)], SLOW, joined=False) == pytest.approx(4 * MS)


def test_in_a_graph_the_last_message_is_waited_for() -> None:
    """Messages leave at 5, 10, 15 and 20 ms and take 1 ms each: the last arrives at 21."""
    assert step_s(20 * MS, [message(MB, 4, waits=False)], SLOW, joined=True) == pytest.approx(21 * MS)


def test_in_a_graph_messages_queue_behind_each_other() -> None:
    """They leave at 5, 10, 15 and 20 ms and take 10 ms each: from 5 on one after the other, 45."""
    assert step_s(20 * MS, [message(10 * MB, 4, waits=False)], SLOW, joined=True) == pytest.approx(45 * MS)


def test_what_is_waited_for_moves_when_the_others_leave() -> None:
    """10 ms of computation and 10 waited for; two messages leave at 10 and 20 ms and take 5: 25."""
    rows = [message(10 * MB, waits=True), message(5 * MB, 2, waits=False)]
    assert step_s(10 * MS, rows, SLOW, joined=True) == pytest.approx(25 * MS)
    assert step_s(10 * MS, rows, SLOW, joined=False) == pytest.approx(20 * MS)


def test_a_message_of_every_other_step_counts_half() -> None:
    assert step_s(0, [message(MB, 0.5, waits=True)], SLOW, joined=True) == pytest.approx(0.5 * MS)
    assert step_s(0, [message(MB, 1.5, waits=False)], SLOW, joined=False) == pytest.approx(1.5 * MS)


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("computed", [1 * MS, 20 * MS])
def test_the_computation_is_what_gives_the_measured_step(computed: float, joined: bool) -> None:
    rows = [message(MB, 3, waits=True), message(MB // 4, 4, waits=False)]
    measured = step_s(computed, rows, SLOW, joined=joined)
    assert compute_s(measured, rows, SLOW, joined=joined) == pytest.approx(computed, rel=1e-6)


def test_messages_longer_than_the_step_leave_no_computation() -> None:
    assert compute_s(1 * MS, [message(2 * MB, waits=True)], SLOW, joined=True) == 0
