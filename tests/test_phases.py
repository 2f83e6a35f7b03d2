"""What a run is at is said, and every second is counted once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from io import StringIO

import pytest
from rich.console import Console

from otil_exp import phases
from otil_exp.phases import Countdown, Phases, Pulse, lasting, phase


class Clock:
    """Time that passes when it is told to, seconds."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def nothing_begun() -> Iterator[None]:
    phases._current = None
    yield
    phases._current = None


def test_each_second_counts_for_the_innermost_phase() -> None:
    """1 s + (2 s + 4 s within) + 8 s, and 16 s between phases; a phase that comes again adds up."""
    clock, out = Clock(), StringIO()
    run = Phases(Console(file=out), clock)
    with run.phase("loading", "loading", True):
        clock.passes(1)
        with run.phase("compiling", "compiling slowly", True):
            clock.passes(2)
            with run.phase("linking", "linking", True):
                clock.passes(4)
        clock.passes(8)
    clock.passes(16)
    with run.phase("linking", "linking again", False):
        clock.passes(32)
    run.note("starting ranks", 64)
    assert run.seconds == {"loading": 9, "compiling": 2, "linking": 36, "starting ranks": 64}
    assert out.getvalue().splitlines() == ["loading", "compiling slowly", "linking", "linking again"]


def test_a_phase_that_fails_is_counted_and_its_error_goes_on() -> None:
    clock = Clock()
    run = Phases(Console(file=StringIO()), clock)
    with pytest.raises(ValueError, match="no"), run.phase("loading", "loading", True):
        clock.passes(3)
        raise ValueError("no")
    with run.phase("next", "next", True):
        clock.passes(1)
    assert run.seconds == {"loading": 3, "next": 1}


def test_a_terminal_shows_the_phase_with_the_time_and_nothing_stays() -> None:
    out = StringIO()
    screen = Console(file=out, force_terminal=True, width=60, markup=False)
    before = threading.active_count()
    phases.begin(screen)
    with phase("loading weights"):
        with phase("compiling", "compiling [red]"):
            pass
        assert "compiling [red] 0:00:00" in plain(out)
    assert "loading weights 0:00:00" in plain(out)
    assert "\x1b[2K" in out.getvalue()  # the line is erased
    deadline = time.monotonic() + 30
    while threading.active_count() > before:  # rich tells its thread to end, and does not wait for it
        assert time.monotonic() < deadline
    with phase("pictures", "10 pictures", live=False):
        assert threading.active_count() == before  # nothing runs beside pictures that are timed
    assert "10 pictures" in plain(out)


def plain(out: StringIO) -> str:
    import re

    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())


def test_other_ranks_say_and_count_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with phase("loading weights"):
        pass
    assert tuple(capsys.readouterr()) == ("", "")


def test_a_grid_says_how_far_it_is_and_what_is_left() -> None:
    """Five cells, of which the second is done already: 60 s and 120 s a cell, so 90 s for each that is left."""
    clock = Clock()
    grid = Countdown(5, left=4, clock=clock)
    assert grid.begins() == "cell 1 of 5"
    clock.passes(60)
    grid.ended(1)
    assert grid.begins() == "cell 2 of 5, about 3 min left"  # 3 x 60 s
    grid.ended(0)
    assert grid.begins() == "cell 3 of 5, about 3 min left"
    clock.passes(120)
    grid.ended(1)
    assert grid.begins(2) == "cells 4 to 5 of 5, about 3 min left"  # 2 x 90 s
    clock.passes(1)
    grid.ended(2)


@pytest.mark.parametrize(
    ("seconds", "words"), [(3, "10 s"), (44, "40 s"), (60, "1 min"), (719, "12 min"), (7800, "2 h 10 min")]
)
def test_times_are_rounded_to_what_can_be_known(seconds: float, words: str) -> None:
    assert phases._rounded(seconds) == words


def test_off_a_terminal_a_long_phase_is_said_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "REPORT_S", 0.01)
    out = StringIO()
    before = threading.active_count()
    with Phases(Console(file=out)).phase("compiling", "compiling", True):
        wait_until(lambda: out.getvalue().count("compiling: 10 s so far") >= 2)
    assert threading.active_count() == before
    said = out.getvalue()
    with Phases(Console(file=out)).phase("pictures", "10 pictures", False):
        assert threading.active_count() == before  # nothing runs beside pictures that are timed
    assert out.getvalue() == f"{said}10 pictures\n"


def test_a_loop_that_is_timed_says_how_far_it_is_at_its_own_pace() -> None:
    """A step a minute: at 180 s and 360 s, and not at 540 s, where it has ended."""
    clock, said = Clock(), list[str]()
    pulse = Pulse(said.append, clock)
    for step in range(9):
        pulse.beat(lambda step=step: f"step {step}")  # type: ignore[misc]
        clock.passes(60)
    assert said == ["step 3", "step 6"]


@pytest.mark.parametrize("terminal", [True, False])
def test_the_time_is_shown_until_another_process_speaks(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    """And no longer: both would write on one line."""
    monkeypatch.setattr(phases, "REPORT_S", 0.01)
    monkeypatch.setattr(phases, "LOOK_S", 0.01)
    out, said, spoken = StringIO(), list[str](), threading.Event()
    screen = Console(file=out, force_terminal=terminal, width=60, markup=False)
    before = threading.active_count()
    with lasting("starting 4 ranks", said.append, screen, until=spoken.is_set):
        wait_until(lambda: "starting 4 ranks 0:00:00" in plain(out) or "starting 4 ranks: 10 s so far" in said)
        spoken.set()
        wait_until(lambda: threading.active_count() == before)
        silent = out.getvalue(), len(said)
        assert out.getvalue().endswith("\x1b[2K") is terminal  # the line is erased
    assert (out.getvalue(), len(said)) == silent
    assert (said[:1] == ["starting 4 ranks"]) is not terminal


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)
