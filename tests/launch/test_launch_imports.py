"""Imports of a rank run without the garbage collector, which then leaves out what they made."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from launch import duties
from otil_exp.launch import launch
from otil_exp.launch.imports import without_collector


@pytest.fixture(autouse=True)
def nothing_stays_frozen() -> Iterator[None]:
    yield
    gc.unfreeze()


class Knot:
    """Refers to itself: only the collector ends it."""

    def __init__(self) -> None:
        self.itself = self


def test_what_is_made_within_is_left_out_and_what_is_made_later_is_not() -> None:
    with without_collector():
        assert not gc.isenabled()
        within = Knot()
    assert gc.isenabled()
    later = Knot()
    seen = {id(one) for one in gc.get_objects()}
    assert id(within) not in seen
    assert id(later) in seen
    gone = weakref.ref(later)
    del later
    gc.collect()
    assert gone() is None


def test_an_import_that_fails_leaves_the_collector_running() -> None:
    with pytest.raises(ModuleNotFoundError), without_collector():
        raise ModuleNotFoundError
    assert gc.isenabled()


@pytest.mark.ranks
@pytest.mark.usefixtures("fresh_processes")
def test_a_rank_collects_but_not_its_libraries() -> None:
    found = launch(duties.collector, 1)
    assert found is not None
    runs, left_out = found
    assert runs
    assert left_out > 100_000  # torch alone makes more
