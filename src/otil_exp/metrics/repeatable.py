"""What makes a network's answer depend on the picture alone, to the last bit, however ranks share the pictures out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def repeatable() -> Iterator[None]:
    """Compute on one CPU thread; on a GPU with fixed algorithms and without TF32. No gradients.

    Sums come in another order on another number of threads (seen in InceptionV3's features), and a rank has fewer
    threads than a process of its own. Pictures, not threads, are what the ranks share out.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with (
            torch.no_grad(),
            torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False),
        ):
            yield
    finally:
        torch.set_num_threads(threads)


def to_8bit(picture: Tensor) -> Tensor:
    """Floats in [0, 1] -> uint8, rounded to the nearest: what the picture's PNG file holds."""
    return (picture * 255).round().clamp(0, 255).to(torch.uint8)
