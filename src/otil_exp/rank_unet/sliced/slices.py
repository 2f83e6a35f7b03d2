"""This rank's slice among the others, and the one collective its layers are made of."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import distributed as dist

from otil_exp.rank_unet.sliced.packing import packed, unpacked


class Slices:
    """The slices of one batch half. Positions are tensors, so that the graphs of all ranks are the same."""

    not_in_graphs = frozenset({"index", "_group"})
    """Attributes that only calls without a graph read."""

    def __init__(self, *, index: int, count: int, group: dist.ProcessGroup | None, device: torch.device) -> None:
        """index: this rank's, from the top. group: the ranks of the slices, in their order; None: the default group."""
        self.index, self.count, self._group = index, count, group
        if self.count > 1:
            members = group or dist.group.WORLD
            assert members is not None, "slices of one picture are in a process group"
            self._name = members.group_name

        def positions(*values: int) -> torch.Tensor:
            return torch.tensor(values, device=device)

        self.own = positions(index)
        """(1,)"""
        self.others = positions(*(other for other in range(self.count) if other != index))
        """(N - 1,)"""
        self._halos = positions(max(2 * index - 1, 0), min(2 * index + 2, 2 * self.count - 1))
        """(2,): last rows of the slice above and first rows of the slice below, among (first, last) of every slice."""
        self.inside = positions(index > 0, index < self.count - 1)
        """(2,) bool: whether there is a slice above, and one below."""

    def halos(self, edges: torch.Tensor) -> torch.Tensor:
        """Of every slice's edge_rows, (N, 2, n, C, 1, w), the two next to this slice: (2, n, C, 1, w), above and below.

        Where `inside` says that there is none, some other row.
        """
        return edges.flatten(0, 1).index_select(0, self._halos)

    def gather_all(self, own: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """`gather` of several tensors, whatever their dtypes, by one all_gather of their bits (packing.packed)."""
        return unpacked(self.gather(packed(own)), own)

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


def edge_rows(x: torch.Tensor) -> torch.Tensor:
    """First and last row of a slice: (n, C, h, w) to (2, n, C, 1, w)."""
    return torch.stack([x[:, :, :1], x[:, :, -1:]])
