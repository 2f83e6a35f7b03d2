"""What a run is at, said while it lasts, and how many seconds each phase took.

    with phase("loading weights"):
        ...

On a terminal a line shows the phase and how long it has lasted, and goes when it ends; elsewhere a phase is one plain
line, and one more every REPORT_S seconds. Only a process that has called `begin` says and counts anything: rank 0.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from otil_exp.terminal import console

PREPARING = {"eager": "preparing", "cuda_graph": "capturing graphs", "compiled": "compiling"}
"""The phase in which the UNet of each kind of step is made ready, by engine."""


REPORT_S = 180.0
"""Seconds between lines that say that something goes on, where no terminal shows the time pass."""

LOOK_S = 0.2
"""Seconds between looks at whether another process has come to speak for itself."""


class Phases:
    """The phases of one run, one within the other at times: each second counts for the innermost."""

    def __init__(self, out: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds: dict[str, float] = {}
        self._out = out
        self._clock = clock
        self._stack: list[str] = []
        self._since = clock()
        self._line: Any = None

    def note(self, name: str, seconds: float) -> None:
        """Count a phase that others timed."""
        self.seconds[name] = self.seconds.get(name, 0.0) + max(0.0, seconds)

    @contextmanager
    def phase(self, name: str, words: str, live: bool) -> Iterator[None]:
        """Say and time a phase."""
        self._switch()
        self._stack.append(name)
        try:
            with self._shown(words, live):
                yield
        finally:
            self._switch()
            self._stack.pop()

    def _switch(self) -> None:
        """Give the time since the last change to the phase that is on."""
        now = self._clock()
        if self._stack:
            self.note(self._stack[-1], now - self._since)
        self._since = now

    @contextmanager
    def _shown(self, words: str, live: bool) -> Iterator[None]:
        """A line of a terminal with the phase, which the one within it takes over; elsewhere a line of text."""
        if not (live and self._out.is_terminal):
            self._out.print(words)
            with _repeated(words, self._out.print) if live else nullcontext():
                yield
            return
        if self._line is not None:
            self._line.stop()
        outer = self._line
        with _line(self._out) as self._line:
            self._line.add_task(words, total=None)
            yield
        self._line = outer
        if outer is not None:
            outer.start()


def _line(out: Console) -> Progress:
    """A line of a terminal with words and the time since, which goes when it is left."""
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    return Progress(*columns, console=out, transient=True)


@contextmanager
def _repeated(words: str, say: Callable[[str], object]) -> Iterator[None]:
    """Say every REPORT_S seconds that something goes on, and since when."""
    since = time.monotonic()

    def repeat(over: threading.Event) -> None:
        while not over.wait(REPORT_S):
            say(going_on(words, time.monotonic() - since))

    with _beside(repeat):
        yield


@contextmanager
def _beside(watch: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run a thread beside the block; it gets the event that says that the block is over."""
    over = threading.Event()
    thread = threading.Thread(target=watch, args=(over,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def going_on(words: str, seconds: float) -> str:
    """compiling: 3 min so far"""
    return f"{words}: {_rounded(seconds)} so far"


@contextmanager
def lasting(
    words: str, say: Callable[[str], object], out: Console, until: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Say what goes on in the block, and how long it has.

    say: takes the words where out is no terminal. until: whether another process has begun to say on the same terminal
    what it is at.
    """
    since = time.monotonic()
    if not out.is_terminal:
        say(words)

    def watch(over: threading.Event) -> None:
        said = since
        with _line(out) if out.is_terminal else nullcontext() as line:
            if line is not None:
                line.add_task(words, total=None)
            while not (over.wait(LOOK_S) or until()):
                if line is None and time.monotonic() - said >= REPORT_S:
                    said = time.monotonic()
                    say(going_on(words, said - since))

    with _beside(watch):
        yield


class Pulse:
    """Says now and then how far a loop is that no thread may run beside: its steps are timed."""

    def __init__(self, say: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock, self._said = say, clock, clock()

    def beat(self, words: Callable[[], str]) -> None:
        """Say the words if REPORT_S seconds have passed since the last ones."""
        if self._clock() - self._said >= REPORT_S:
            self._said = self._clock()
            self._say(words())


_current: Phases | None = None


def begin(out: Console | None = None) -> Phases:
    """Begin the phases of a run in this process; those of a run before it are over."""
    global _current
    _current = Phases(out or console())
    return _current


@contextmanager
def phase(name: str, words: str | None = None, *, live: bool = True) -> Iterator[None]:
    """Say and time a phase of the run that has begun in this process; where none has, do nothing.

    name: its key in record.json; words: what is said, the name if None; live: whether a terminal shows the time pass,
    which takes a thread: not while pictures are timed, nor beside another bar.
    """
    with nullcontext() if _current is None else _current.phase(name, words or name, live):
        yield


class Countdown:
    """How far a grid is: "cell 3 of 16, about 12 min left"."""

    def __init__(self, cells: int, left: int, clock: Callable[[], float] = time.monotonic) -> None:
        """cells: of the grid; left: those that are still to be run, the others are done already."""
        self._cells = cells
        self._left = left
        self._next = 1
        self._ran = 0
        self._seconds = 0.0
        self._clock = clock
        self._since = clock()

    def begins(self, cells: int = 1) -> str:
        """What to say of the next cells, that run together."""
        first, self._next = self._next, self._next + cells
        self._since = self._clock()
        which = f"cell {first}" if cells == 1 else f"cells {first} to {first + cells - 1}"
        left = f", about {_rounded(self._seconds / self._ran * self._left)} left" if self._ran and self._left else ""
        return f"{which} of {self._cells}{left}"

    def ended(self, ran: int) -> None:
        """So many of them were run; the others were done already."""
        if ran:
            self._ran += ran
            self._left -= ran
            self._seconds += self._clock() - self._since


def _rounded(seconds: float) -> str:
    """40 s, 12 min, 2 h 10 min."""
    if seconds < 60:
        return f"{max(10, round(seconds, -1)):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
