"""Count collectives and bytes where they happen: at torch.distributed's own functions."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch import distributed as dist

POINT_TO_POINT = "point_to_point"
"""The operation of a message from one rank to another; one that is sent while another comes in is one of them."""


class Message(NamedTuple):
    """One operation of a rank, as far as its time on a link depends on it."""

    operation: str
    """all_gather, all_reduce, broadcast or point_to_point."""

    ranks: int
    """Who take part."""

    bytes: int
    """What a rank contributes to an all_gather, the tensor of an all_reduce or broadcast, the larger of what is sent
    and received point to point."""

    waits: bool
    """Whether the rank computes on only when it has ended: false for what travels behind its computation."""


@dataclass
class Traffic:
    """What one rank sent: number of collectives and bytes, and the operations themselves with how often each was."""

    collectives: int = 0
    bytes_sent: int = 0
    messages: Counter[Message] = field(default_factory=Counter, compare=False)

    def add(self, other: Traffic) -> None:
        self.collectives += other.collectives
        self.bytes_sent += other.bytes_sent
        self.messages.update(other.messages)


def _gathered(own: torch.Tensor, peers: int) -> int:
    """all_gather hands the rank's own tensor to each peer (ring or direct alike)."""
    return own.numel() * own.element_size() * peers


def _reduced(own: torch.Tensor, peers: int) -> int:
    """A ring all-reduce sends 2 (n - 1) / n of the tensor (reduce-scatter, then all-gather)."""
    return 2 * own.numel() * own.element_size() * peers // (peers + 1)


def _sent_whole(own: torch.Tensor, peers: int) -> int:
    """What the source of a broadcast hands to each peer."""
    return own.numel() * own.element_size() * peers


_COLLECTIVES: dict[str, tuple[str, Callable[[torch.Tensor, int], int]]] = {
    "all_gather": ("tensor", _gathered),
    "all_gather_into_tensor": ("input_tensor", _gathered),
    "all_reduce": ("tensor", _reduced),
}
"""Collectives: parameter of the tensor a rank contributes, bytes it sends for it given the number of peers."""

_OPERATION = {"all_gather_into_tensor": "all_gather"}
"""Functions that are another one's operation."""

_SENDS = ("send", "isend")
_RECEIVES = ("recv", "irecv")
_STARTED = ("isend", "irecv")
"""What returns at once, whatever its arguments."""

_REFUSED = (
    "all_gather_coalesced",
    "all_gather_object",
    "all_gather_single",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "broadcast_object_list",
    "gather",
    "gather_into_tensor",
    "gather_object",
    "gather_single",
    "recv_object_list",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send_object_list",
)
"""Collectives that no method calls in a step, so that nobody has said what they send."""


class TrafficCounter:
    """Counts the collectives this process calls while `installed()` is active.

    Bytes are the payload a rank puts on the wire with a bandwidth-optimal algorithm: numel * itemsize * (n - 1) for an
    all_gather, 2 (n - 1) / n of the tensor for an all_reduce, a message for who sends it; protocol overhead is not
    counted. Messages that are sent and received at once are one operation. What nobody has said how to count is refused
    with RuntimeError, so that nothing passes as 0 bytes. A replayed CUDA graph
    calls no Python: its collectives are recorded once at capture (`recording`) and added at each replay (`add`).
    """

    def __init__(self) -> None:
        self.total = Traffic()
        self._installed = False

    def take(self) -> Traffic:
        """Return what was counted since the last call, and start again."""
        taken, self.total = self.total, Traffic()
        return taken

    def add(self, traffic: Traffic) -> None:
        """Count collectives that ran without Python (a graph replay)."""
        self.total.add(traffic)

    @contextmanager
    def recording(self) -> Iterator[Traffic]:
        """Collect what is called in the block into the yielded Traffic instead of the running total."""
        outer, self.total = self.total, Traffic()
        recorded = self.total
        try:
            yield recorded
        finally:
            self.total = outer

    @contextmanager
    def installed(self) -> Iterator[TrafficCounter]:
        """Wrap torch.distributed's collectives for the duration of the block (once, where blocks nest)."""
        if self._installed:
            yield self
            return
        originals = {name: getattr(dist, name) for name in self._names()}
        for name, original in originals.items():
            setattr(dist, name, self._wrapped(name, original))
        self._installed = True
        try:
            yield self
        finally:
            self._installed = False
            for name, original in originals.items():
                setattr(dist, name, original)

    @staticmethod
    def _names() -> list[str]:
        """What is wrapped, of what this version of torch has; a barrier carries nothing."""
        known = [*_COLLECTIVES, *_SENDS, *_RECEIVES, "broadcast", "batch_isend_irecv", "P2POp", *_REFUSED]
        return [name for name in known if hasattr(dist, name)]

    def _wrapped(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        if name == "P2POp":  # it takes torch's own isend and irecv alone
            return lambda op, *args, **kwargs: original(getattr(op, "__wrapped__", op), *args, **kwargs)
        count = _refuse if name in _REFUSED else self._count
        order = list(inspect.signature(original).parameters)

        @wraps(original)
        def counted(*args: Any, **kwargs: Any) -> Any:
            count(name, {**dict(zip(order, args, strict=False)), **kwargs})
            return original(*args, **kwargs)

        return counted

    def _count(self, name: str, given: dict[str, Any]) -> None:
        """given: the call's arguments by name."""
        ranks = dist.get_world_size(given.get("group")) if name != "batch_isend_irecv" else 2
        waits = name not in _STARTED and not given.get("async_op", False)
        if name in _COLLECTIVES:
            parameter, bytes_for = _COLLECTIVES[name]
            own = given[parameter]
            sent, message = bytes_for(own, ranks - 1), Message(_OPERATION.get(name, name), ranks, own.nbytes, waits)
        elif name == "broadcast":
            own = given["tensor"]
            sent = _sent_whole(own, ranks - 1) if _is_source(given) else 0
            message = Message(name, ranks, own.nbytes, waits)
        elif name == "batch_isend_irecv":
            both = Counter[str]()
            for one in given["p2p_op_list"]:
                both[one.op.__name__] += one.tensor.nbytes
            # Who sends alone goes on while it travels; what is received is what the next computation needs.
            waits = both["irecv"] > 0
            sent, message = both["isend"], Message(POINT_TO_POINT, 2, max(both.values(), default=0), waits)
        else:
            own = given["tensor"]
            sent = own.nbytes if name in _SENDS else 0
            message = Message(POINT_TO_POINT, 2, own.nbytes, waits)
        self.total.add(Traffic(1, sent, Counter({message: 1})))


def _is_source(given: dict[str, Any]) -> bool:
    """Whether this rank is the one that broadcasts."""
    if given.get("group_src") is not None:
        return bool(given["group_src"] == dist.get_rank(given.get("group")))
    return bool(given.get("src") == dist.get_rank())


def _refuse(name: str, given: dict[str, Any]) -> None:
    raise RuntimeError(
        f"torch.distributed.{name} was called while traffic is counted, and nobody has said what it sends: add it to "
        f"otil_exp/traffic.py, or use {', '.join(_COLLECTIVES)}, broadcast, isend and irecv"
    )
