"""A stand-in for CUDA graphs where there is no GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from otil_exp.cuda_graphs import Captured


def emulated_graphs(traffic):
    """Record the operations of a call: a replay repeats these alone, on the same tensors, and overwrites its results.

    As with a real graph, what Python decides or counts happens once, while it is recorded: a call that must do another
    thing at the next replay, or works on other tensors by then, is found out. The counter sees nothing of a replay.
    """

    def record(call):
        with _Operations() as operations:
            output = call()

        def replay():
            with traffic.recording():
                for operation in operations.done:
                    _repeat(*operation)

        return Captured(replay, output)

    return record


class _Operations(TorchDispatchMode):
    """Keeps what is done in its block, collectives included, with arguments and results."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        self.done.append((function, args, kwargs or {}, result))
        return result


def _repeat(function: Any, args: Any, kwargs: Any, result: Any) -> None:
    again = function(*args, **kwargs)
    for old, new in zip(tree_leaves(result), tree_leaves(again), strict=True):
        if not isinstance(new, torch.Tensor):
            if hasattr(new, "wait"):  # a collective's handle
                new.wait()
        elif old.data_ptr() != new.data_ptr():
            old.copy_(new)
