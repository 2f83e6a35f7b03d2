"""Which kernels a graph gets while it is compiled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.nn.attention import SDPBackend, sdpa_kernel

ATTENTION = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]
"""Kernels of attention, best first, as PyTorch itself ranks them on Hopper; a graph keeps what is chosen while it is
compiled, where PyTorch would take FlashAttention (0.8 ms of a step slower, benchmarks/one_gpu_speed.md)."""


@contextmanager
def best_kernels() -> Iterator[None]:
    """Within it graphs get the kernels that were measured to be best (benchmarks/one_gpu_speed.md)."""
    from torch._inductor.virtualized import V  # late, as the next: it takes seconds, which graphs that are found save

    from otil_exp.rank_unet.rows_at_once import RowsAtOnce

    with sdpa_kernel(ATTENTION, set_priority=True), V.set_choices_handler(RowsAtOnce()):
        yield
