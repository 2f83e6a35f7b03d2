"""Messages between ranks of one half of the batch: sent and received at once, on the device, into buffers that stay.

A message has a shape that both ends know beforehand. What is sent is copied into one of two buffers, so that whoever
made it may overwrite it while it travels; what is received lies in a buffer of its own until `depth` more of its kind
have come. On NCCL nothing waits on the host. On gloo the host waits, bounded by the group's time-out, and what lies on
a GPU goes through the host's memory, as gloo sends nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor
from torch import distributed as dist

LINGER_S = 1.0
"""Seconds a rank lives on after a time-out: all who waited time out too, so that who is left is who did not come."""


@dataclass(frozen=True)
class Parcel:
    """What a kind of message holds: tensors side by side in one buffer."""

    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype

    @property
    def numel(self) -> int:
        return sum(prod(shape) for shape in self.shapes)

    def opened(self, buffer: Tensor) -> tuple[Tensor, ...]:
        """The tensors, as views of a buffer (numel,)."""
        pieces = buffer.split([prod(shape) for shape in self.shapes])
        return tuple(piece.view(shape) for piece, shape in zip(pieces, self.shapes, strict=True))

    def packed(self, tensors: Sequence[Tensor], buffer: Tensor) -> None:
        """Copy tensors of these shapes into a buffer (numel,)."""
        for place, tensor in zip(self.opened(buffer), tensors, strict=True):
            place.copy_(tensor)


@dataclass(frozen=True)
class Outgoing:
    """A message to send."""

    kind: Hashable
    to: int
    """Rank in the group."""

    tensors: Sequence[Tensor]


@dataclass(frozen=True)
class Incoming:
    """A message to receive."""

    kind: Hashable
    source: int
    """Rank in the group."""


class Messages:
    """Swaps of messages in one group; both ends of a pair swap in the same order."""

    def __init__(self, group: dist.ProcessGroup | None, device: torch.device, depth: int = 1) -> None:
        """group: the ranks of this half; None is the default group. depth: messages of a kind that are kept."""
        self._group, self._device, self._depth = group, device, depth
        on_host = device.type == "cuda" and dist.get_backend(group) == "gloo"
        self._wire = torch.device("cpu") if on_host else device
        self._parcels: dict[Hashable, Parcel] = {}
        self._sending: dict[Hashable, tuple[Tensor, Tensor]] = {}
        self._receiving: dict[Hashable, tuple[Tensor, ...]] = {}
        self._turns: dict[Hashable, int] = {}
        self._under_way: dict[int, tuple[int, Sequence[dist.Work]]] = {}

    def register(self, kind: Hashable, parcel: Parcel, *, sends: bool = False, receives: bool = False) -> None:
        """Make the buffers of a kind of message."""
        self._parcels[kind] = parcel
        if sends:
            self._sending[kind] = (self._buffer(parcel, self._wire), self._buffer(parcel, self._wire))
        if receives:
            self._receiving[kind] = tuple(self._buffer(parcel, self._device) for _ in range(self._depth))
        self._turns[kind] = 0

    def meet(self) -> None:
        """Let the group's communicator start up: the first operation of a group is one of all its ranks."""
        dist.all_reduce(torch.zeros(1, device=self._device), group=self._group)

    def swap(self, gives: Sequence[Outgoing], takes: Sequence[Incoming]) -> list[tuple[Tensor, ...]]:
        """Send and receive at once. Returns what came, in the order of `takes`: views that stay until `depth` more.

        Raises TimeoutError, naming the rank, if a message does not come in the group's time-out (gloo; NCCL's watchdog
        ends the process and logs the operation).
        """
        operations, peers, places = [], [], []
        for take in takes:
            place = self._next(take.kind, self._receiving)
            buffer = place if self._wire == self._device else torch.empty_like(place, device=self._wire)
            places.append((place, buffer))
            operations.append(dist.P2POp(dist.irecv, buffer, group=self._group, group_peer=take.source))
            peers.append(take.source)
        for give in gives:
            buffer = self._free(give)
            self._parcels[give.kind].packed(give.tensors, buffer)
            operations.append(dist.P2POp(dist.isend, buffer, group=self._group, group_peer=give.to))
            peers.append(give.to)
        self._start(operations, peers, len(takes))
        for place, buffer in places:
            if place is not buffer:
                place.copy_(buffer)
        return [self._parcels[take.kind].opened(place) for take, (place, _) in zip(takes, places, strict=True)]

    def finish(self) -> None:
        """Wait for what is still being sent."""
        for peer, works in self._under_way.values():
            for work in works:
                self._wait(work, peer, "take a message")
        self._under_way.clear()

    def _start(self, operations: Sequence[dist.P2POp], peers: Sequence[int], takes: int) -> None:
        """Start all operations, of which the first are takes, and wait for these."""
        works = dist.batch_isend_irecv(list(operations))
        if len(works) != len(operations):  # NCCL: one handle for all of them, and waiting is the stream's business
            for work in works:
                work.wait()
            return
        for index, (operation, peer, work) in enumerate(zip(operations, peers, works, strict=True)):
            if index < takes:
                self._wait(work, peer, "send its message")
            else:
                self._under_way[id(operation.tensor)] = (peer, [work])

    def _free(self, give: Outgoing) -> Tensor:
        """The buffer whose turn it is, once what was last sent from it has gone."""
        buffer = self._next(give.kind, self._sending)
        peer, works = self._under_way.pop(id(buffer), (give.to, ()))
        for work in works:
            self._wait(work, peer, "take a message")
        return buffer

    def _next(self, kind: Hashable, buffers: Mapping[Hashable, tuple[Tensor, ...]]) -> Tensor:
        turn = self._turns[kind]
        self._turns[kind] += 1
        return buffers[kind][turn % len(buffers[kind])]

    def _wait(self, work: dist.Work, peer: int, what: str) -> None:
        try:
            work.wait()
        except RuntimeError as error:
            if "imed out" not in str(error) and "timeout" not in str(error).lower():
                raise
            time.sleep(LINGER_S)
            rank = dist.get_global_rank(self._group, peer) if self._group is not None else peer
            raise TimeoutError(
                f"rank {rank} did not {what} within the process group's time-out: if it is only slow (loading, "
                f"compiling), raise launch.collective_timeout_s; its log says what it was doing"
            ) from error

    @staticmethod
    def _buffer(parcel: Parcel, device: torch.device) -> Tensor:
        return torch.zeros(parcel.numel, dtype=parcel.dtype, device=device)
