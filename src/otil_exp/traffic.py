"""Count collectives and bytes where they happen: at torch.distributed's own functions."""

from __future__ import annotations

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


# name -> (position and keyword of the tensor a rank contributes, bytes it sends for it given the number of peers)
_COLLECTIVES: dict[str, tuple[int, str, Callable[[torch.Tensor, int], int]]] = {
    "all_gather": (1, "tensor", _gathered),
    "all_gather_into_tensor": (1, "input_tensor", _gathered),
    "all_reduce": (0, "tensor", _reduced),
}


class TrafficCounter:
    """Counts the collectives this process calls while `installed()` is active.

    Bytes are the payload a rank puts on the wire with a bandwidth-optimal algorithm: numel * itemsize * (n - 1) for an
    all_gather, 2 (n - 1) / n of the tensor for an all_reduce; protocol overhead is not counted. A replayed CUDA graph
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
        originals = {name: getattr(dist, name) for name in _COLLECTIVES}
        for name, original in originals.items():
            setattr(dist, name, self._counting(original, *_COLLECTIVES[name]))
        self._installed = True
        try:
            yield self
        finally:
            self._installed = False
            for name, original in originals.items():
                setattr(dist, name, original)

    def _counting(
        self, original: Callable[..., Any], position: int, keyword: str, bytes_for: Callable[[torch.Tensor, int], int]
    ) -> Callable[..., Any]:
        @wraps(original)
        def counted(*args: Any, **kwargs: Any) -> Any:
            own = args[position] if len(args) > position else kwargs[keyword]
            peers = dist.get_world_size(kwargs.get("group")) - 1
            self.total.add(Traffic(collectives=1, bytes_sent=bytes_for(own, peers)))
            return original(*args, **kwargs)

        return counted
