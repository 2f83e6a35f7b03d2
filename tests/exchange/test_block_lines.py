"""How far the line of a block is followed: by its age, and what its runs held before."""

from __future__ import annotations

import torch
from torch import Tensor

from otil_exp.exchange.block_lines import BlockLines
from otil_exp.exchange.context_map import IndexMap

RUN = 2
OWNERS = IndexMap(rows=torch.tensor([[0, 3], [1, 2]]), run=RUN)
"""Block 0 has runs 0 and 3 of a slice's buffer of 4 runs, block 1 those between."""


class Told:
    """What layers are told; slice 1 is the own one."""

    def __init__(self) -> None:
        self.before: list[Tensor | None] = [torch.zeros(8), None]

    def by_runs(self, run: int) -> None:
        assert run == RUN
        self.ahead = [torch.zeros(4, 1) for _ in range(2)]

    def of_blocks(self) -> list[float]:
        first, second, third, fourth = self.ahead[0].flatten().tolist()
        assert (first, second) == (fourth, third)
        return [first, second]


def test_a_line_leads_as_far_as_a_block_is_old_and_no_further_than_it_is_long() -> None:
    told, buffers = Told(), torch.zeros(2, 8)
    lines = BlockLines(told, buffers, OWNERS)
    lines.all_came(0)
    lines.look_ahead(1)
    assert told.of_blocks() == [0, 0]  # one value is known
    lines.all_came(3)
    lines.look_ahead(4)
    assert told.of_blocks() == [torch.tensor(1 / 3).item()] * 2  # values of steps 0 and 3
    lines.comes(0, torch.tensor([1]), torch.tensor([1, 2]), made=4)
    lines.look_ahead(5)
    assert told.of_blocks() == [torch.tensor(2 / 3).item(), 1]  # of steps 3 and 4
    lines.look_ahead(9)
    assert told.of_blocks() == [1, 1]
    lines.forget()
    lines.all_came(0)
    lines.look_ahead(1)
    assert told.of_blocks() == [0, 0]


def test_what_a_block_was_before_is_kept_when_it_comes() -> None:
    told, buffers = Told(), torch.arange(16.0).view(2, 8)
    lines = BlockLines(told, buffers, OWNERS)
    lines.all_came(0)
    lines.comes(0, torch.tensor([0]), torch.tensor([0, 3]), made=1)
    assert told.before[0] is not None
    assert told.before[0].tolist() == [0, 1, 0, 0, 0, 0, 6, 7]
