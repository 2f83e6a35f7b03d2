"""Watch what the exchange asks of torch: collectives called, bytes given to them, device values read by the host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

_GATHERS = ("all_gather", "all_gather_into_tensor")
_OTHERS = ("all_reduce", "all_gather_object", "barrier", "broadcast", "reduce", "scatter", "gather", "send", "recv")


@contextmanager
def collectives() -> Iterator[list[int]]:
    """Yield a list that gets, for each collective of the block, the bytes the rank gave to it."""
    called: list[int] = []
    originals = {name: getattr(dist, name) for name in (*_GATHERS, *_OTHERS)}

    def watched(name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            called.append(args[1].numel() * args[1].element_size() if name in _GATHERS else 0)
            return originals[name](*args, **kwargs)

        return call

    for name in originals:
        setattr(dist, name, watched(name))
    try:
        yield called
    finally:
        for name, original in originals.items():
            setattr(dist, name, original)


class Kernels(TorchDispatchMode):
    """Lists the operations that do something on a device: all but views and the making of empty memory."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view and "empty" not in str(func):
            self.called.append(str(func))
        return func(*args, **(kwargs or {}))


class NoHostRead(TorchDispatchMode):
    """Refuse the operations whose result, or whose result's shape, the host must wait for.

    Indexing by tensor is refused whole, since a mask among the indices hides a nonzero.
    """

    REFUSED = (
        "_local_scalar_dense",
        "is_nonzero",
        "item",
        "nonzero",
        "masked_select",
        "equal",
        "unique",
        "index.Tensor",
    )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).removeprefix("aten.")
        if name.startswith(self.REFUSED) or "_unique" in name or name.startswith(("index_put", "_index_put")):
            raise RuntimeError(f"{func} makes the host wait for the device")
        return func(*args, **(kwargs or {}))
