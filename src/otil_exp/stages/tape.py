"""An SDXL-like UNet as one list of units in the order in which they run: cost, shape and skips of each.

A unit is a resnet, a block of a transformer, a sampler, or the first or last convolution. Names say where they lie:
down0.res1, down1.attn0, up0.attn1.4 (the first four blocks of that attention have run; after the last one it is
up0.attn1), mid.res0, up0.up. Torch-free: worked out from the configuration of the UNet alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

TOKENS = 77
"""Tokens of a prompt (CLIP)."""


@dataclass(frozen=True)
class Unit:
    """What one unit of the UNet costs and leaves behind, for one sample."""

    name: str
    flops: int
    """Multiplications and additions."""

    channels: int
    height: int
    width: int
    """Shape of the hidden state after it."""

    pushes: bool = False
    """Whether the state after it is also kept as a skip."""

    pops: bool = False
    """Whether it takes the last skip first."""

    inside: bool = False
    """Whether the next unit is a block of the same transformer: its residual is then needed beside the state."""

    @property
    def elements(self) -> int:
        """Elements of the hidden state after it."""
        return self.channels * self.height * self.width

    @property
    def crossing(self) -> int:
        """Elements that cross if the UNet is cut after it."""
        return self.elements * (2 if self.inside else 1)


def tape(config: Mapping[str, Any], height: int, width: int) -> tuple[Unit, ...]:
    """The units of a UNet2DConditionModel for latents of height x width.

    config: its configuration (config.json). Raises ValueError for a UNet with blocks other than SDXL's.
    """
    return tuple(_Tape(config, height, width).units())


def unit_names(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the units, whatever the size."""
    return tuple(unit.name for unit in tape(config, 64, 64))


_DOWN = {"DownBlock2D": False, "CrossAttnDownBlock2D": True}
_UP = {"UpBlock2D": False, "CrossAttnUpBlock2D": True}


class _Tape:
    """Walks through the UNet as its forward does; h, w, c are the state's shape so far."""

    def __init__(self, config: Mapping[str, Any], height: int, width: int) -> None:
        self.widths = tuple(config["block_out_channels"])
        self.down = [_attends(_DOWN, name) for name in config["down_block_types"]]
        self.up = [_attends(_UP, name) for name in config["up_block_types"]]
        if config.get("mid_block_type", "UNetMidBlock2DCrossAttn") != "UNetMidBlock2DCrossAttn":
            raise ValueError(
                f"mid_block_type={config['mid_block_type']}: only a middle block with attention can be cut"
            )
        for setting in ("layers_per_block", "transformer_layers_per_block", "cross_attention_dim"):
            _refuse_uneven(setting, config.get(setting), whole=setting != "transformer_layers_per_block")
        if (reverse := config.get("reverse_transformer_layers_per_block")) is not None:
            raise ValueError(f"reverse_transformer_layers_per_block={reverse}: {_ALIKE}")
        self.layers = int(config.get("layers_per_block", 2))
        self.blocks = _a_level(config.get("transformer_layers_per_block", 1), len(self.widths))
        self.latent = int(config.get("in_channels", 4)), int(config.get("out_channels", 4))
        self.text = int(config.get("cross_attention_dim", 1280))
        self.h, self.w, self.c = height, width, self.widths[0]
        self.skips: list[tuple[int, int, int]] = []

    def units(self) -> Iterator[Unit]:
        yield self._push(self._unit("conv_in", self._conv(self.latent[0], self.c, 3)))
        yield from self._down()
        yield from self._middle()
        yield from self._up()
        yield self._unit("conv_out", self._conv(self.c, self.latent[1], 3), channels=self.latent[1])

    def _down(self) -> Iterator[Unit]:
        for level, attends in enumerate(self.down):
            for layer in range(self.layers):
                resnet = self._resnet(f"down{level}.res{layer}", self.c, self.widths[level])
                yield resnet if attends else self._push(resnet)
                if attends:
                    *rest, last = self._attention(f"down{level}.attn{layer}", self.blocks[level])
                    yield from rest
                    yield self._push(last)
            if level + 1 < len(self.down):
                self.h, self.w = (self.h + 1) // 2, (self.w + 1) // 2
                yield self._push(self._unit(f"down{level}.down", self._conv(self.c, self.c, 3)))

    def _middle(self) -> Iterator[Unit]:
        yield self._resnet("mid.res0", self.c, self.c)
        yield from self._attention("mid.attn0", self.blocks[-1])
        yield self._resnet("mid.res1", self.c, self.c)

    def _up(self) -> Iterator[Unit]:
        for level, attends in enumerate(self.up):
            for layer in range(self.layers + 1):
                skip, self.h, self.w = self.skips.pop()
                width = self.widths[-1 - level]
                yield self._resnet(f"up{level}.res{layer}", self.c + skip, width, pops=True)
                if attends:
                    yield from self._attention(f"up{level}.attn{layer}", self.blocks[-1 - level])
            if level + 1 < len(self.up):
                _, self.h, self.w = self.skips[-1]
                yield self._unit(f"up{level}.up", self._conv(self.c, self.c, 3))

    def _attention(self, name: str, blocks: int) -> Iterator[Unit]:
        """A Transformer2D: norm and projection run with its first block, projection and sum with its last."""
        tokens, c = self.h * self.w, self.c
        projection = 2 * tokens * c * c
        own = 4 * projection + 4 * tokens * tokens * c
        cross = 2 * projection + 4 * TOKENS * self.text * c + 4 * tokens * TOKENS * c
        block = own + cross + 12 * projection  # GEGLU: c to 8c, 4c to c
        for done in range(1, blocks + 1):
            ends = (done == 1) + (done == blocks)
            last = done == blocks
            yield self._unit(name if last else f"{name}.{done}", block + ends * projection, inside=not last)

    def _resnet(self, name: str, before: int, after: int, pops: bool = False) -> Unit:
        time = 2 * 4 * self.widths[0] * after
        shortcut = self._conv(before, after, 1) if before != after else 0
        self.c = after
        return self._unit(name, self._conv(before, after, 3) + self._conv(after, after, 3) + time + shortcut, pops=pops)

    def _conv(self, before: int, after: int, side: int) -> int:
        return 2 * before * after * side * side * self.h * self.w

    def _unit(self, name: str, flops: int, *, channels: int = 0, pops: bool = False, inside: bool = False) -> Unit:
        return Unit(name, flops, channels or self.c, self.h, self.w, pops=pops, inside=inside)

    def _push(self, unit: Unit) -> Unit:
        self.skips.append((unit.channels, unit.height, unit.width))
        return Unit(unit.name, unit.flops, unit.channels, unit.height, unit.width, pushes=True)


def _attends(kinds: Mapping[str, bool], name: str) -> bool:
    if name not in kinds:
        raise ValueError(f"{name}: only UNets of {', '.join(kinds)} can be cut by depth")
    return kinds[name]


_ALIKE = "only UNets whose way up has the layers of the way down, the same in each part of a level, can be cut by depth"


def _refuse_uneven(setting: str, value: Any, *, whole: bool) -> None:
    """Raise ValueError for a list of levels where one number is for all (whole), or for a list within that list."""
    levels = value if isinstance(value, list | tuple) else []
    if (whole and levels) or any(isinstance(one, list | tuple) for one in levels):
        raise ValueError(f"{setting}={value}: {_ALIKE}")


def _a_level(value: int | list[int] | tuple[int, ...], levels: int) -> tuple[int, ...]:
    return (value,) * levels if isinstance(value, int) else tuple(value)
