"""Layer context in encoded bytes: what all ranks hold of every slice, renewed by what is sent of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from otil_exp.exchange.codec import Codec


class CodedContext:
    """The slices' context as all of them hold it, byte for byte the same everywhere, their own included.

    With a residual codec the change against it is sent, whoever renewed it last and in whatever kind of step. The first
    time in a picture nothing is held, and values are sent (`Codec.of_values`): pictures do not depend on earlier ones.
    """

    def __init__(self, codec: Codec, held: Tensor, *, slice_index: int, group: dist.ProcessGroup | None = None) -> None:
        """held: (slices, n), renewed in place. group: the ranks of the slices, in slice order."""
        self.codec, self.held, self.slice_index = codec, held, slice_index
        self.nothing_held = True
        self._group = group

    def send(self, start: int, end: int, fresh: Tensor, *, at_once: bool = False) -> Arrival:
        """Hand elements start to end of the own context to all slices, whose part of theirs comes at the same time.

        fresh: (end - start,), the own context now. at_once: whether `Arrival.wait` comes right after; otherwise nothing
        waits for it before. One all_gather.
        """
        change = self.codec.residual and not self.nothing_held
        codec = self.codec if change else self.codec.of_values()
        encoded = codec.encode(fresh - self.held[self.slice_index, start:end] if change else fresh)
        collected = encoded.new_empty((len(self.held), len(encoded)))
        # What is read next does not travel behind anything, and is counted so (otil_exp.traffic).
        work = dist.all_gather(list(collected.unbind(0)), encoded, group=self._group, async_op=not at_once)
        return Arrival(work, codec, encoded, collected, self.held[:, start:end], change)


class Arrival:
    """A part of the slices' context on its way to where it is held."""

    def __init__(self, work: Any, codec: Codec, encoded: Tensor, collected: Tensor, held: Tensor, change: bool) -> None:
        self._work: Any = work  # None once it has ended
        self._is_in_place = False
        self._codec, self._held, self._change = codec, held, change
        self._sent = (encoded, collected)  # neither is given up before it has arrived

    def wait(self) -> None:
        """Wait for it, and put it in its place; once, however often it is called."""
        if self._is_in_place:
            return
        if self._work is not None:
            self._work.wait()
            self._work = None
        self._is_in_place = True
        for held, received in zip(self._held, self._sent[1], strict=True):
            values = self._codec.decode(received, held.numel(), held.dtype)
            torch.add(held, values, out=held) if self._change else held.copy_(values)
