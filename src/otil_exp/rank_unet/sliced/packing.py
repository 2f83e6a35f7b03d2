"""Tensors of several dtypes as one tensor of bit patterns, so that one collective takes them all."""

from __future__ import annotations

from collections.abc import Sequence

import torch

WORD = torch.int32
"""An integer, which no code that moves it can take for a number that it may round, nor for a NaN it may rewrite."""


def packed(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The bits of the tensors, one after the other: (words,), int32. Each fills whole words; wide dtypes come first."""
    for tensor in tensors:
        assert tensor.numel() * tensor.element_size() % WORD.itemsize == 0, f"half a word: {tuple(tensor.shape)}"
    return torch.cat([tensor.flatten().view(WORD) for tensor in tensors])


def unpacked(words: torch.Tensor, like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """From what several packed, (N, words): each tensor with the dtype and shape of one in `like`, as (N, *shape)."""
    sizes = [tensor.numel() * tensor.element_size() // WORD.itemsize for tensor in like]
    parts = words.split(sizes, dim=1)
    return [part.view(own.dtype).unflatten(1, own.shape) for part, own in zip(parts, like, strict=True)]
