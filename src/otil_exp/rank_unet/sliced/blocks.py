"""The transformer blocks of a UNet, compiled once for all blocks alike.

SDXL has 70 blocks of two shapes. In one graph each is compiled for itself, and that is most of getting ready. Here a
block is one operator of the graph around it, and a graph of its own, which PyTorch finds again for the next block of
the same shape: weights and context are arguments of the graph. The seams lie between matrix products and what reads or
writes them anyway, so that nothing is joined less than before: what a block adds last, the next one adds first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import torch
from diffusers.models.attention import BasicTransformerBlock
from diffusers.models.transformers.transformer_2d import Transformer2DModel
from torch import nn

from otil_exp.rank_unet.compiled_call import compiled_call

GRAPHS = 32
"""Graphs of blocks that PyTorch may keep at a time: shapes of blocks, twice (a transformer's first block has nothing to
add), times forms of the step."""

Tokens = tuple[torch.Tensor, torch.Tensor]
"""Tokens of a transformer, and what is still to be added to them: (n, tokens, C) each."""

Call = Callable[["CarryingBlock", torch.Tensor, "torch.Tensor | None", torch.Tensor], Tokens]
"""(block, tokens, what is to be added or None, text) -> tokens."""


class CarryingBlock(nn.Module):
    """A transformer block that leaves its last addition to the next one, which reads its sum anyway."""

    name: str | None = None
    """Under which a graph finds it; None: graphs hold the block itself."""
    graphs: dict[tuple[torch.Size, bool], Call]
    """`called`, compiled, by the shape of the tokens and whether something is to be added."""

    not_in_graphs = frozenset({"name", "graphs"})
    """Of blocks alike they are all that differs."""

    def __init__(self, block: BasicTransformerBlock) -> None:
        super().__init__()
        assert block.norm_type == "layer_norm"
        assert block.pos_embed is None
        assert not block.only_cross_attention
        self.norm1, self.norm2, self.norm3 = block.norm1, block.norm2, block.norm3
        self.attn1, self.attn2, self.ff = block.attn1, block.attn2, block.ff

    def forward(self, tokens: torch.Tensor, added: torch.Tensor | None, text: torch.Tensor) -> Tokens:
        """tokens, added: (n, tokens, C); text: (n, text tokens, width). added: what the block before left, None for
        the first of a transformer."""
        if self.name is None or not torch.compiler.is_compiling():
            return self.called(tokens, added, text)
        found: Tokens = torch.ops.otil_exp.block(tokens, added, text, self.name)
        return found

    def graph(self, tokens: torch.Tensor, added: torch.Tensor | None, text: torch.Tensor) -> Call:
        """`called`, compiled for such arguments."""
        kind = tokens.shape, added is not None
        if kind not in self.graphs:
            self.graphs[kind] = compiled_call(CarryingBlock.called, self, tokens, added, text)
        return self.graphs[kind]

    def called(self, tokens: torch.Tensor, added: torch.Tensor | None, text: torch.Tensor) -> Tokens:
        if added is not None:
            tokens = added + tokens
        tokens = self.attn1(self.norm1(tokens)) + tokens
        tokens = self.attn2(self.norm2(tokens), encoder_hidden_states=text) + tokens
        return tokens, self.ff(self.norm3(tokens))


class BlockSequence(nn.Module):
    """All blocks of one transformer, called as one block."""

    def __init__(self, blocks: nn.ModuleList) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(CarryingBlock(block) for block in blocks)

    def forward(self, hidden_states: torch.Tensor, encoder_hidden_states: torch.Tensor, **_: Any) -> torch.Tensor:
        """hidden_states: (n, tokens, C); encoder_hidden_states: (n, text tokens, width). Returns (n, tokens, C)."""
        tokens, added = self.blocks[0](hidden_states, None, encoder_hidden_states)
        for block in self.blocks[1:]:
            tokens, added = block(tokens, added, encoder_hidden_states)
        found: torch.Tensor = added + tokens
        return found


def group_blocks(unet: nn.Module) -> None:
    """Make the blocks of every transformer of a UNet one sequence, in place."""
    for module in unet.modules():
        if isinstance(module, Transformer2DModel):
            module.transformer_blocks = nn.ModuleList([BlockSequence(module.transformer_blocks)])


def compile_apart(unet: nn.Module, form: str) -> list[str]:
    """Let graphs that are made of a UNet from now on call its blocks, which are compiled by themselves.

    form: of the step; a UNet of another form has blocks of its own over the same weights. Returns the names by which
    graphs call the blocks.
    """
    blocks = {_free_name(f"{form} {name}"): one for name, one in unet.named_modules() if isinstance(one, CarryingBlock)}
    for name, block in blocks.items():
        block.graphs, block.name = {}, name
    _named.update(blocks)
    return list(blocks)


_named: WeakValueDictionary[str, CarryingBlock] = WeakValueDictionary()


def _free_name(name: str) -> str:
    """The same in every process that has one UNet of a form at a time, so that its graphs are found again."""
    number, free = 1, name
    while free in _named:
        number += 1
        free = f"{name} ({number})"
    return free


def _block(tokens: torch.Tensor, added: torch.Tensor | None, text: torch.Tensor, name: str) -> Tokens:
    block = _named[name]
    with torch._C._AutoDispatchBelowADInplaceOrView():  # as in an operator's first call, not in later ones
        return block.graph(tokens, added, text)(block, tokens, added, text)


def _block_fake(tokens: torch.Tensor, added: torch.Tensor | None, text: torch.Tensor, name: str) -> Tokens:
    return torch.empty_like(tokens), torch.empty_like(tokens)


_library = torch.library.Library("otil_exp", "DEF")
_library.define("block(Tensor tokens, Tensor? added, Tensor text, str name) -> (Tensor, Tensor)")
_library.impl("block", _block, "CompositeExplicitAutograd")
torch.library.register_fake("otil_exp::block", _block_fake, lib=_library)
