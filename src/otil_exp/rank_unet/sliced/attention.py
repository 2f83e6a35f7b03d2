"""Attention of a slice: its queries over the keys and values of all slices, with merged projections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from diffusers.models.attention_processor import Attention
from torch import nn
from torch.nn import functional as F

from otil_exp.choices import GnSync
from otil_exp.rank_unet.sliced.groupnorm import SlicedGroupNorm
from otil_exp.rank_unet.sliced.layer import SlicedLayer
from otil_exp.rank_unet.sliced.slices import Slices


class SelfAttention(SlicedLayer):
    """Self-attention whose query, key and value are one product; with one slice, diffusers' own function."""

    key_value: torch.Tensor
    """(n, tokens of all slices, 2 C): keys and values, this slice's first, for attention heeds no order."""

    def __init__(self, attention: Attention, slices: Slices) -> None:
        super().__init__()
        self.to_qkv = merged([attention.to_q, attention.to_k, attention.to_v])
        self.to_out, self._heads, self._slices = attention.to_out, attention.heads, slices

    def forward(self, hidden_states: torch.Tensor, **_: Any) -> torch.Tensor:
        """hidden_states: (n, tokens of this slice, C). Returns the same shape."""
        query, own = self.to_qkv(hidden_states).tensor_split((hidden_states.shape[-1],), dim=-1)
        if self._slices.count > 1:
            if self.synchronous:
                others = self._slices.gather(own).index_select(0, self._slices.others)  # (N - 1, n, tokens, 2 C)
                self._keep("key_value", torch.cat([own, others.transpose(0, 1).flatten(1, 2)], dim=1))
            else:  # written into its place: joining would copy the others' too, keys and values each by a kernel
                self.key_value[:, : own.shape[1]] = own
            own = self.key_value
        return _attended(query, own, self._heads, self.to_out)


class CrossAttention(SlicedLayer):
    """Attention to the text, whose keys and values a synchronous step computes and later ones find (pp/attn.py:73)."""

    text: torch.Tensor
    """(n, text tokens, 2 C): keys and values."""

    def __init__(self, attention: Attention, slices: Slices) -> None:
        super().__init__()
        self.to_q, self.to_kv = attention.to_q, merged([attention.to_k, attention.to_v])
        self.to_out, self._heads, self._slices = attention.to_out, attention.heads, slices

    def forward(self, hidden_states: torch.Tensor, encoder_hidden_states: torch.Tensor, **_: Any) -> torch.Tensor:
        """hidden_states: (n, tokens, C); encoder_hidden_states: (n, text tokens, width). Returns (n, tokens, C)."""
        if self._slices.count == 1:
            text = self.to_kv(encoder_hidden_states)
        else:
            if self.synchronous:
                self._keep("text", self.to_kv(encoder_hidden_states))
            text = self.text
        return _attended(self.to_q(hidden_states), text, self._heads, self.to_out)


class PictureAttention(nn.Module):
    """Attention of a VAE: from every pixel to every pixel of all slices, normalised over all of them."""

    def __init__(self, attention: Attention, slices: Slices) -> None:
        super().__init__()
        self.norm = SlicedGroupNorm(attention.group_norm, slices, GnSync.off)
        self.attention = SelfAttention(attention, slices)

    def forward(self, hidden_states: torch.Tensor, **_: Any) -> torch.Tensor:
        """hidden_states: (n, C, h, w). Returns the same shape."""
        tokens = self.norm(hidden_states).flatten(2).transpose(1, 2)
        found: torch.Tensor = self.attention(tokens)
        return hidden_states + found.transpose(1, 2).unflatten(2, hidden_states.shape[2:])


def merged(layers: Sequence[nn.Linear]) -> nn.Linear:
    """One linear layer whose output is theirs side by side."""
    bias = layers[0].bias is not None
    weight = torch.cat([layer.weight.data for layer in layers])
    with torch.device("meta"):
        one = nn.Linear(weight.shape[1], weight.shape[0], bias=bias)
    one.weight = nn.Parameter(weight, requires_grad=False)
    if bias:
        one.bias = nn.Parameter(torch.cat([layer.bias.data for layer in layers]), requires_grad=False)
    return one


def _attended(query: torch.Tensor, key_value: torch.Tensor, heads: int, to_out: nn.ModuleList) -> torch.Tensor:
    """query: (n, tokens, C); key_value: (n, tokens', 2 C). Returns (n, tokens, C)."""
    key, value = key_value.chunk(2, dim=-1)
    query, key, value = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in (query, key, value))
    found = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
    result: torch.Tensor = to_out[0](found)
    return result
