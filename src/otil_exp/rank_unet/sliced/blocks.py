"""The transformer blocks of a UNet, compiled once for all transformers alike.

SDXL has 70 blocks in eleven transformers of two shapes. In one graph each block is compiled for itself, and that is
most of getting ready. Here a transformer's blocks are one operator of the graph around them, and a graph of their own,
which PyTorch finds again for the next transformer of the same shape: weights and context are arguments of the graph.
The seams lie between matrix products and what reads or writes them anyway, so that nothing is joined less than before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import torch
from diffusers.models.transformers.transformer_2d import Transformer2DModel
from torch import nn

SHAPES = 16
"""Graphs of blocks that PyTorch may keep at a time: shapes of transformers times forms of the step."""

Call = Callable[["BlockSequence", torch.Tensor, torch.Tensor], torch.Tensor]
"""(blocks, tokens, text) -> tokens."""


class BlockSequence(nn.Module):
    """All blocks of one transformer, called as one block."""

    name: str | None = None
    """Under which a graph finds it; None: graphs hold the blocks themselves."""
    compiled: Call
    """`called`, compiled."""

    def __init__(self, blocks: nn.ModuleList) -> None:
        super().__init__()
        self.blocks = blocks

    def forward(self, hidden_states: torch.Tensor, encoder_hidden_states: torch.Tensor, **_: Any) -> torch.Tensor:
        """hidden_states: (n, tokens, C); encoder_hidden_states: (n, text tokens, width). Returns (n, tokens, C)."""
        if self.name is None or not torch.compiler.is_compiling():
            return self.called(hidden_states, encoder_hidden_states)
        found: torch.Tensor = torch.ops.otil_exp.blocks(hidden_states, encoder_hidden_states, self.name)
        return found

    def called(self, tokens: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            tokens = block(tokens, encoder_hidden_states=text)
        return tokens


def group_blocks(unet: nn.Module) -> None:
    """Make the blocks of every transformer of a UNet one sequence, in place."""
    for module in unet.modules():
        if isinstance(module, Transformer2DModel):
            module.transformer_blocks = nn.ModuleList([BlockSequence(module.transformer_blocks)])


def compile_apart(unet: nn.Module, form: str, compiled: Callable[[Call], Call]) -> None:
    """Let graphs that are made of a UNet from now on call its sequences, which are compiled by themselves.

    form: of the step; a UNet of another form has sequences of its own over the same weights.
    """
    call = compiled(BlockSequence.called)
    for name, module in unet.named_modules():
        if isinstance(module, BlockSequence):
            module.compiled, module.name = call, _free_name(f"{form} {name}")
            _named[module.name] = module


_named: WeakValueDictionary[str, BlockSequence] = WeakValueDictionary()


def _free_name(name: str) -> str:
    """The same in every process that has one UNet of a form at a time, so that its graphs are found again."""
    number, free = 1, name
    while free in _named:
        number += 1
        free = f"{name} ({number})"
    return free


def _blocks(tokens: torch.Tensor, text: torch.Tensor, name: str) -> torch.Tensor:
    sequence = _named[name]
    with torch._C._AutoDispatchBelowADInplaceOrView():  # as in an operator's first call, not in later ones
        return sequence.compiled(sequence, tokens, text)


def _blocks_fake(tokens: torch.Tensor, text: torch.Tensor, name: str) -> torch.Tensor:
    return torch.empty_like(tokens)


_library = torch.library.Library("otil_exp", "DEF")
_library.define("blocks(Tensor tokens, Tensor text, str name) -> Tensor")
_library.impl("blocks", _blocks, "CompositeExplicitAutograd")
torch.library.register_fake("otil_exp::blocks", _blocks_fake, lib=_library)
