"""The segments of a UNet as calls on tensors: tensors in, tensors out, static shapes, no work for the host.

What a segment computes is what diffusers' own forward computes between the same two units, operation for operation, so
that segments run one after the other give the whole UNet's output bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from diffusers import UNet2DConditionModel
from torch import Tensor, nn

from otil_exp.stages.tape import Unit
from otil_exp.stages.wiring import Segment

ADDED = ("text_embeds", "time_ids")
"""What an SDXL is told besides the step and the text."""


@dataclass(frozen=True)
class _Layer:
    """The modules of one unit."""

    kind: str
    """conv_in, resnet, transformer (whole), block (of a transformer that is cut), down, up or conv_out."""

    module: Any
    skip: bool = False
    """Whether a skip is joined first."""

    keeps: bool = False
    """Whether the state is left as a skip."""

    whole: Any = None
    """block: the transformer it is part of."""

    first: bool = False
    last: bool = False
    """block: whether the transformer's input and output projection are done with it."""

    size: tuple[int, int] | None = None
    """up: the size to reach, where it is not the double."""


class SegmentCall(nn.Module):
    """One segment of a UNet, on the modules of the UNet itself.

    Called with what all segments are told (timestep (b,), text (b, tokens, width), of an SDXL also text_embeds (b,
    width) and time_ids (b, 6)), then its state (the latents; the hidden state; inside a transformer tokens and
    residual), then the skips it takes. Returns its state, then the skips it leaves; skips in the tape's order.
    """

    def __init__(self, unet: UNet2DConditionModel, units: Sequence[Unit], segment: Segment) -> None:
        super().__init__()
        self.layers = _layers(unet, units, segment)
        self.takes = segment.takes(units)
        self.leaves = segment.leaves(units)
        self.states = 2 if segment.start and units[segment.start - 1].inside else 1
        self.added = ADDED if unet.config.addition_embed_type == "text_time" else ()
        self._unet = (unet,)  # a tuple: not a child, whose weights would be this segment's

    def forward(self, timestep: Tensor, text: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        told = len(self.added)
        embedding = self._embedding(timestep, text, dict(zip(self.added, tensors[:told], strict=True)))
        tensors = tensors[told:]
        state, residual = tensors[0], tensors[1] if self.states == 2 else None
        skips = list(tensors[self.states :])
        for layer in self.layers:
            if layer.skip:
                state = torch.cat([state, skips.pop()], dim=1)
            state, residual = _run(layer, state, residual, embedding, text)
            if layer.keeps:
                skips.append(state)
        assert len(skips) == len(self.leaves)
        return (state, *((residual,) if residual is not None else ()), *skips)

    def modules_used(self) -> list[nn.Module]:
        """The modules whose weights this segment needs."""
        unet = self._unet[0]
        own = [layer.module for layer in self.layers]
        for layer in self.layers:
            if layer.whole is not None:
                own += [*_projections(layer.whole, layer.first, layer.last)]
            if layer.kind == "conv_out":
                own += [unet.conv_norm_out, unet.conv_out]
        return [
            *own,
            *(unet.get_submodule(name) for name in ("time_embedding", "add_embedding") if hasattr(unet, name)),
        ]

    def _embedding(self, timestep: Tensor, text: Tensor, added: dict[str, Tensor]) -> Tensor:
        """What every resnet is told about the step, and the picture's text and size (as UNet2DConditionModel does)."""
        unet = self._unet[0]
        embedding = unet.time_embedding(unet.get_time_embed(text, timestep))
        extra = unet.get_aug_embed(emb=embedding, encoder_hidden_states=text, added_cond_kwargs=added)
        return embedding if extra is None else embedding + extra


def keep_only(unet: UNet2DConditionModel, calls: Sequence[SegmentCall]) -> None:
    """Drop all layers of the UNet that none of the segments needs, weights included."""
    kept = {id(module) for call in calls for module in call.modules_used()}
    _drop_others(unet, kept)


def _run(
    layer: _Layer, state: Tensor, residual: Tensor | None, embedding: Tensor, text: Tensor
) -> tuple[Tensor, Tensor | None]:
    module = layer.module
    if layer.kind == "resnet":
        return module(state, embedding), None
    if layer.kind == "transformer":
        return module(state, encoder_hidden_states=text, return_dict=False)[0], None
    if layer.kind == "block":
        if layer.first:
            residual, state = state, _tokens(layer.whole, state)
        state = module(state, encoder_hidden_states=text)
        if layer.last:
            assert residual is not None
            return _joined(layer.whole, state, residual), None
        return state, residual
    if layer.kind == "up":
        return module(state, layer.size), None
    return module(state), None


def _tokens(transformer: Any, state: Tensor) -> Tensor:
    """(b, c, h, w) to (b, h w, c), normed and projected, as Transformer2DModel begins."""
    state = transformer.norm(state)
    if not transformer.use_linear_projection:
        state = transformer.proj_in(state)
    b, c, h, w = state.shape
    state = state.permute(0, 2, 3, 1).reshape(b, h * w, c)
    return transformer.proj_in(state) if transformer.use_linear_projection else state


def _joined(transformer: Any, tokens: Tensor, residual: Tensor) -> Tensor:
    """(b, h w, c) back to (b, c, h, w), projected and added to the residual, as Transformer2DModel ends."""
    b, _, h, w = residual.shape
    if transformer.use_linear_projection:
        tokens = transformer.proj_out(tokens)
    state = tokens.reshape(b, h, w, -1).permute(0, 3, 1, 2).contiguous()
    if not transformer.use_linear_projection:
        state = transformer.proj_out(state)
    return state + residual


def _projections(transformer: nn.Module, first: bool, last: bool) -> list[nn.Module]:
    before = [transformer.get_submodule("norm"), transformer.get_submodule("proj_in")] if first else []
    return before + ([transformer.get_submodule("proj_out")] if last else [])


class _Output(nn.Module):
    """Norm, activation and last convolution of a UNet, as one call."""

    def __init__(self, unet: UNet2DConditionModel) -> None:
        super().__init__()
        self.norm, self.act, self.conv = unet.conv_norm_out, unet.conv_act, unet.conv_out

    def forward(self, state: Tensor) -> Any:
        return self.conv(self.act(self.norm(state)))


def _layers(unet: UNet2DConditionModel, units: Sequence[Unit], segment: Segment) -> list[_Layer]:
    """The layers of a segment; a transformer that lies within it whole is one layer."""
    layers: list[_Layer] = []
    for index in range(segment.start, segment.stop):
        unit, name = units[index], units[index].name.split(".")
        where, what = name[0], name[1] if len(name) > 1 else ""
        block = _block(unet, where)
        if where in ("conv_in", "conv_out"):
            module = unet.conv_in if where == "conv_in" else _Output(unet)
            layers.append(_Layer(where, module, keeps=unit.pushes))
        elif what.startswith("res"):
            layers.append(_Layer("resnet", block.resnets[int(what[3:])], skip=unit.pops, keeps=unit.pushes))
        elif what.startswith("attn"):
            _add_transformer_unit(layers, block.attentions[int(what[4:])], units, index, segment)
        elif what == "down":
            layers.append(_Layer("down", block.downsamplers[0], keeps=unit.pushes))
        else:
            doubled = (2 * units[index - 1].height, 2 * units[index - 1].width)
            size = (unit.height, unit.width)
            layers.append(_Layer("up", block.upsamplers[0], size=None if size == doubled else size))
    return layers


def _add_transformer_unit(
    layers: list[_Layer], transformer: Any, units: Sequence[Unit], index: int, segment: Segment
) -> None:
    """One block of a transformer: as part of the whole transformer if that lies within the segment."""
    blocks = transformer.transformer_blocks
    done = index
    while units[done].inside:
        done += 1
    first = done - len(blocks) + 1
    if first >= segment.start and done < segment.stop:
        if index == done:
            layers.append(_Layer("transformer", transformer, keeps=units[index].pushes))
        return
    layers.append(
        _Layer(
            "block",
            blocks[index - first],
            keeps=units[index].pushes,
            whole=transformer,
            first=index == first,
            last=index == done,
        )
    )


def _block(unet: UNet2DConditionModel, where: str) -> Any:
    """down0, mid or up1, as the UNet calls it; the UNet itself for its first and last convolution."""
    if where == "mid":
        return unet.mid_block
    for kind, blocks in (("down", unet.down_blocks), ("up", unet.up_blocks)):
        if where.startswith(kind):
            return blocks[int(where.removeprefix(kind))]
    return unet


def _drop_others(module: nn.Module, kept: set[int]) -> None:
    for name, child in list(module.named_children()):
        if id(child) in kept:
            continue
        if any(id(one) in kept for one in child.modules()):
            _drop_others(child, kept)
        elif next(child.parameters(), None) is not None:
            setattr(module, name, nn.Identity())
