"""Which cells are one, in which order they run, and which share ranks."""

from __future__ import annotations

import pytest

from composing import Compose
from otil_exp.cells.grid import Member, check_grid, packed

GRID = [
    ("otil", "4gpu_split"),
    ("reference", "4gpu_split"),
    ("balanced", "4gpu_split"),
    ("balanced", "2gpu_split"),  # one slice: the same cell as the next
    ("otil", "2gpu_split"),
    ("guide", "4gpu_split"),
]


@pytest.fixture
def members(composed: Compose) -> list[Member]:
    configs = [composed(f"preset={preset}", f"topology={topology}", "device=cpu") for preset, topology in GRID]
    return check_grid(configs, [" ".join(names) for names in GRID])


def test_references_go_first_and_equal_cells_are_one(members: list[Member]) -> None:
    assert [member.numbers for member in members] == [[1], [0], [2], [3, 4], [5]]
    assert members[3].title == "#3 balanced 2gpu_split (the same run: #4 otil 2gpu_split)"


@pytest.mark.parametrize(
    ("size", "expected"),
    [(1, [[1], [0], [2], [5], [3]]), (2, [[1], [0, 2], [5], [3]]), (9, [[1], [0, 2, 5], [3]])],
)
def test_cells_of_one_topology_share_ranks(members: list[Member], size: int, expected: list[list[int]]) -> None:
    assert [[member.numbers[0] for member in pack] for pack in packed(members, size)] == expected


def test_all_mistakes_of_a_grid_are_in_one_message_and_a_launcher_adds_its_own(composed: Compose) -> None:
    configs = [composed("device=cpu", f"height={height}") for height in (256, 720, 512)]

    def refuse(cell: object) -> None:
        raise ValueError("not on this cluster")

    with pytest.raises(ValueError, match="nothing was started") as error:
        check_grid(configs, ["a", "b", "c"], check=refuse)
    shared, own = str(error.value).splitlines()[1:]
    assert shared == "a; c: not on this cluster"
    assert own.startswith("b: height=720")


def test_a_mistake_of_all_cells_is_said_once(composed: Compose) -> None:
    configs = [composed(f"preset={preset}", "prompts.limit=0", "device=cpu") for preset, _ in GRID]
    with pytest.raises(ValueError, match="nothing was started") as error:
        check_grid(configs, [" ".join(names) for names in GRID])
    assert str(error.value).splitlines()[1:] == ["all 6 cells: prompts.limit=0: use 1 or more, or null for all 10"]
