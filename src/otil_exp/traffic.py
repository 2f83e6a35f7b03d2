"""Count collectives and bytes where they happen: at torch.distributed's own functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from torch import distributed as dist


@dataclass
class Traffic:
    """What one rank sent: number of collectives and bytes."""

    collectives: int = 0
    bytes_sent: int = 0

    def add(self, other: Traffic) -> None:
        self.collectives += other.collectives
        self.bytes_sent += other.bytes_sent


def _gathered(own: torch.Tensor, peers: int) -> int:
    """all_gather hands the rank's own tensor to each peer (ring or direct alike)."""
    return own.numel() * own.element_size() * peers


def _reduced(own: torch.Tensor, peers: int) -> int:
    """A ring all-reduce sends 2 (n - 1) / n of the tensor (reduce-scatter, then all-gather)."""
    return 2 * own.numel() * own.element_size() * peers // (peers + 1)


def _sent_whole(own: torch.Tensor, peers: int) -> int:
    """A message, or what the source of a broadcast hands to each peer."""
    return own.numel() * own.element_size() * peers


_COLLECTIVES: dict[str, tuple[str, Callable[[torch.Tensor, int], int]]] = {
    "all_gather": ("tensor", _gathered),
    "all_gather_into_tensor": ("input_tensor", _gathered),
    "all_reduce": ("tensor", _reduced),
}
"""Collectives: parameter of the tensor a rank contributes, bytes it sends for it given the number of peers."""

_SENDS = ("send", "isend")
_RECEIVES = ("recv", "irecv")

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
        peers = dist.get_world_size(given.get("group")) - 1 if name != "batch_isend_irecv" else 1
        if name in _COLLECTIVES:
            parameter, bytes_for = _COLLECTIVES[name]
            sent = bytes_for(given[parameter], peers)
        elif name == "broadcast":
            sent = _sent_whole(given["tensor"], peers) if _is_source(given) else 0
        elif name == "batch_isend_irecv":
            operations = given["p2p_op_list"]
            sent = sum(_sent_whole(one.tensor, 1) for one in operations if one.op.__name__ == "isend")
        else:
            sent = _sent_whole(given["tensor"], 1) if name in _SENDS else 0
        self.total.add(Traffic(collectives=1, bytes_sent=sent))


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
