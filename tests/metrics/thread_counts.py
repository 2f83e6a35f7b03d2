"""Ranks of one job have fewer threads than a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def on_threads(number: int) -> Iterator[None]:
    """As in a process that was given so many threads; what is called leaves the number as it finds it."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
        assert torch.get_num_threads() == number
    finally:
        torch.set_num_threads(before)
