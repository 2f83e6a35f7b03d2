"""This rank's slice among the others, and the one collective its layers are made of."""

from __future__ import annotations

import torch
from torch import distributed as dist

from otil_exp.topology import RankContext


class Slices:
    """The slices of one batch half. Positions are tensors, so that the graphs of all ranks are the same."""

    def __init__(self, ranks: RankContext, *, together: bool) -> None:
        """together: whether the slices are parts of one picture; else each is a picture of its own."""
        index, self.count = (ranks.slice_index, ranks.topology.slices) if together else (0, 1)
        self._group = ranks.batch_group
        if self.count > 1:
            group = ranks.batch_group or dist.group.WORLD
            assert group is not None, "slices of one picture are in a process group"
            self._name = group.group_name

        def positions(*values: int) -> torch.Tensor:
            return torch.tensor(values, device=ranks.device)

        self.own = positions(index)
        """(1,)"""
        self.others = positions(*(other for other in range(self.count) if other != index))
        """(N - 1,)"""
        self.halos = positions(max(2 * index - 1, 0), min(2 * index + 2, 2 * self.count - 1))
        """(2,): last rows of the slice above and first rows of the slice below, among (first, last) of every slice."""
        self.inside = positions(index > 0, index < self.count - 1)
        """(2,) bool: whether there is a slice above, and one below."""

    def gather(self, own: torch.Tensor) -> torch.Tensor:
        """Collect a tensor of the same shape from every slice: (...) to (N, ...), in slice order; one all_gather."""
        own = own.contiguous()
        if torch.compiler.is_compiling():  # the form that a graph can hold; dist.all_gather writes into its arguments
            operators = torch.ops._c10d_functional
            gathered: torch.Tensor = operators.wait_tensor(
                operators.all_gather_into_tensor(own[None], self.count, self._name)
            )
            return gathered
        gathered = own.new_empty((self.count, *own.shape))
        dist.all_gather(list(gathered.unbind(0)), own, group=self._group)
        return gathered
