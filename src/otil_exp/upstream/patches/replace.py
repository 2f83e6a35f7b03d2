"""Set an attribute for the duration of a block, whichever of several blocks ends first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_ABSENT = object()

_REPLACED: dict[tuple[int, str], list[list[Any]]] = {}
"""By owner and name: what was there at first, then what each open block put there, innermost last."""


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set owner.name to value inside the block; after the last open one it is what it was, or absent if it was absent.

    owner: a class or a module; only its own attributes are looked at, not inherited ones.
    """
    key, mine = (id(owner), name), [value]
    layers = _REPLACED.setdefault(key, [[vars(owner).get(name, _ABSENT)]])
    layers.append(mine)
    setattr(owner, name, value)
    try:
        yield
    finally:
        layers[:] = [layer for layer in layers if layer is not mine]
        (left,) = layers[-1]
        if left is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, left)
        if len(layers) == 1:
            del _REPLACED[key]
