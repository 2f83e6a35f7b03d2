"""Fewer bytes for what is sent: a pair of pure functions.

Values are quantised in groups of neighbours that share a scale: the group's largest magnitude (fp8, int8, int4), or its
mean magnitude (int2, int1). With `residual` it is the change against what the peers already hold that is quantised: the
sender keeps what they hold, so an error of one step is part of the next step's change and does not add up (error
feedback; CompactFusion, NeurIPS 2025, arXiv 2507.17511). On a GPU each way is one kernel (`codec_kernels`), with the
same bytes as the plain form; int2 and int1 have the plain form alone.

The most that a value can be off is half a step of its group's scale (int8, int4), or 2**-4 of itself and at least half
of the smallest step (fp8). With m the mean magnitude, a value of magnitude a is off by |a - m| (int1), by |a - m / 2|
below m and by |a - 2 m| from m on (int2): the levels of CompactFusion, whose means are those of a channel. Then comes
one rounding to the values' dtype (tests/exchange/test_codec.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

GROUP = 128
"""Values that share a scale: 4 bytes more for 128."""

_LARGEST = {"fp8": 448.0, "int8": 127.0, "int4": 7.0}
"""What a group's largest magnitude becomes: the largest float8_e4m3fn, the largest symmetric integer."""

_BITS = {"fp8": 8, "int8": 8, "int4": 4, "int2": 2, "int1": 1}
"""Of a value, without its part of the scale."""

FP8_CAPABILITY = (8, 9)
"""Compute capability of the first GPUs that convert to float8."""

QUANTIZERS = ("none", *_BITS)


@dataclass(frozen=True)
class Codec:
    """Values (n,) of a floating dtype to bytes and back."""

    quantizer: str = "none"
    """none (the values themselves); fp8 (e4m3), int8, int4, int2 or int1, so many bits a value and a scale a group."""

    residual: bool = False
    """Whether the caller encodes the change against what the receiver holds, and adds it there."""

    def __post_init__(self) -> None:
        if self.quantizer not in QUANTIZERS:
            raise ValueError(f"codec.quantizer={self.quantizer}: use one of {', '.join(QUANTIZERS)}")
        if self.residual and self.quantizer == "none":
            raise ValueError(
                "codec.residual=true with codec.quantizer=none: the change takes as many bytes as the value; use "
                "codec=residual (int8) or codec.residual=false"
            )

    def encode(self, values: Tensor) -> Tensor:
        """Bytes (size(n, dtype),) uint8 of values (n,)."""
        if self.quantizer == "none":
            return values.contiguous().view(torch.uint8)
        if (kernels := _kernels(values.device, self.quantizer)) is not None:
            encoded: Tensor = kernels.encode(values, self.quantizer, _LARGEST[self.quantizer], GROUP)
            return encoded
        groups = _grouped(values.float())
        scales = self._scales(groups)
        quantised = _WRITE[self.quantizer](groups / torch.where(scales > 0, scales, 1))
        return torch.cat([scales.flatten().view(torch.uint8), quantised.flatten()])

    def decode(self, encoded: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """The values (count,) of a dtype that bytes stand for, as close as the module says to what was encoded."""
        if self.quantizer == "none":
            return encoded.view(dtype)
        if (kernels := _kernels(encoded.device, self.quantizer)) is not None:
            decoded: Tensor = kernels.decode(encoded, count, dtype, self.quantizer, GROUP)
            return decoded
        groups = math.ceil(count / GROUP)
        scales, quantised = encoded.split([4 * groups, len(encoded) - 4 * groups])
        values = _READ[self.quantizer](quantised.view(groups, -1)) * scales.view(torch.float32)[:, None]
        return values.flatten()[:count].to(dtype)

    def size(self, count: int, dtype: torch.dtype) -> int:
        """Bytes of `count` encoded values of a dtype."""
        if self.quantizer == "none":
            return count * dtype.itemsize
        return math.ceil(count / GROUP) * (4 + GROUP * _BITS[self.quantizer] // 8)

    def of_values(self) -> Codec:
        """What writes down values where this one would write changes and nothing is held yet: a byte a value."""
        return Codec("fp8" if self.quantizer == "fp8" else "int8") if self.residual else self

    def _scales(self, groups: Tensor) -> Tensor:
        """Scale of each group, (groups, 1) float32; of a group of zeros 1 (a largest), or 0 (a mean)."""
        if self.quantizer not in _LARGEST:
            return groups.abs().mean(dim=1, keepdim=True)
        largest = groups.abs().amax(dim=1, keepdim=True)
        return torch.where(largest > 0, largest / _LARGEST[self.quantizer], torch.ones_like(largest))


@cache
def _kernels(device: torch.device, quantizer: str) -> Any:
    """The module with one kernel each for a GPU that has them; None where the plain form below is used."""
    if device.type != "cuda" or quantizer not in _LARGEST or find_spec("triton") is None:
        return None
    if quantizer == "fp8" and torch.cuda.get_device_capability(device) < FP8_CAPABILITY:
        return None
    kernels = import_module("otil_exp.exchange.codec_kernels")
    return kernels if quantizer in kernels.QUANTIZERS else None


def _packed(codes: Tensor, bits: int) -> Tensor:
    """Codes (groups, GROUP) uint8 of so many bits to 8 / bits a byte, the first one lowest."""
    share = 8 // bits
    packed = codes[:, ::share].clone()
    for place in range(1, share):
        packed |= codes[:, place::share] << place * bits
    return packed


def _unpacked(packed: Tensor, bits: int) -> Tensor:
    """And back, (groups, GROUP) uint8."""
    return torch.stack([packed >> at & 2**bits - 1 for at in range(0, 8, bits)], dim=-1).flatten(1)


def _write_int2(groups: Tensor) -> Tensor:
    """Two bits: whether the magnitude is a mean one or more, above whether the value is not negative."""
    return _packed((groups.abs() >= 1).to(torch.uint8) << 1 | (groups >= 0).to(torch.uint8), 2)


def _read_int2(packed: Tensor) -> Tensor:
    codes = _unpacked(packed, 2).float()
    large = (codes >= 2).float()
    return (0.5 + 1.5 * large) * (2 * (codes - 2 * large) - 1)


_WRITE: dict[str, Callable[[Tensor], Tensor]] = {
    "fp8": lambda groups: groups.to(torch.float8_e4m3fn).view(torch.uint8),
    "int8": lambda groups: groups.round().clamp(-127, 127).to(torch.int8).view(torch.uint8),
    "int4": lambda groups: _packed((groups.round().clamp(-7, 7) + 8).to(torch.uint8), 4),
    "int2": _write_int2,
    "int1": lambda groups: _packed((groups >= 0).to(torch.uint8), 1),
}
"""Scaled values (groups, GROUP) to bytes (groups, n)."""

_READ: dict[str, Callable[[Tensor], Tensor]] = {
    "fp8": lambda quantised: quantised.view(torch.float8_e4m3fn).float(),
    "int8": lambda quantised: quantised.view(torch.int8).float(),
    "int4": lambda packed: _unpacked(packed, 4).float() - 8,
    "int2": _read_int2,
    "int1": lambda packed: 2 * _unpacked(packed, 1).float() - 1,
}
"""And back, float32."""


def _grouped(values: Tensor) -> Tensor:
    """Pad values (n,) with zeros to whole groups: (groups, GROUP)."""
    missing = -values.numel() % GROUP
    return torch.nn.functional.pad(values, (0, missing)).view(-1, GROUP)
