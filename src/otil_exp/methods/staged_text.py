"""Keys and values of the text on ranks that compute stages: the outermost one makes them, once a picture, for all.

Of stages that do equal work the outermost one has the fewest weights, as a weight is used once for every pixel. The
others do without these projections, so that the rank that needs the most memory needs less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from otil_exp.exchange.messages import Incoming, Messages, Outgoing, Parcel
from otil_exp.stages.text import KeptOutput
from otil_exp.topology import RankContext


class TextOfPicture:
    """What the text's projections give for a picture, handed out among the ranks of a half of the batch."""

    def __init__(
        self,
        projections: Mapping[KeptOutput, nn.Linear],
        kept: Sequence[Sequence[KeptOutput]],
        ranks: RankContext,
    ) -> None:
        """projections: all of the UNet; only the first rank of the half keeps them, on its device. kept: what the
        layers of each rank of the half read, by rank."""
        self._own, self._kept = ranks.slice_index, kept
        self._linears = [[projections[one].to(ranks.device) for one in its] for its in kept] if self._own == 0 else []
        self._takers = [rank for rank, its in enumerate(kept) if rank and its]
        self._messages = Messages(ranks.batch_group, ranks.device)

    def prepare(self, text: Tensor) -> None:
        """Make the buffers, for texts of this shape: (b, tokens, width). All ranks of the half must call it."""
        for rank in self._takers:
            shapes = tuple((*text.shape[:2], one.features) for one in self._kept[rank])
            parcel = Parcel(shapes, text.dtype)
            self._messages.register(rank, parcel, sends=self._own == 0, receives=self._own == rank)
        self.hand_out(text)

    def hand_out(self, text: Tensor) -> None:
        """A picture begins with this text: all layers find its keys and values. All ranks of the half must call it.

        Raises TimeoutError, naming the rank, where they do not come in the group's time-out.
        """
        if self._own == 0:
            made = [[linear(text) for linear in its] for its in self._linears]
            self._messages.swap([Outgoing(rank, rank, made[rank]) for rank in self._takers], [])
            self._keep(made[0])
        elif self._own in self._takers:
            self._keep(*self._messages.swap([], [Incoming(self._own, 0)]))

    def finish(self) -> None:
        """Wait for what is still being sent."""
        self._messages.finish()

    def _keep(self, tensors: Sequence[Tensor]) -> None:
        """What came lies where every message of its kind does, so that layers can read it there."""
        for kept, tensor in zip(self._kept[self._own], tensors, strict=True):
            kept.give(tensor)
