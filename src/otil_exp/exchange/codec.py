"""Fewer bytes for what is sent: a pair of pure functions.

Values are quantised in groups of neighbours that share a scale, the group's largest magnitude. With `residual` it is
the change against what the peers already hold that is quantised: the sender keeps what they hold, so an error of one
step is part of the next step's change and does not add up (error feedback; CompactFusion, NeurIPS 2025, arXiv
2507.17511). On a GPU each way is one kernel (`codec_kernels`), with the same bytes as the plain form.

The most that a value can be off is half a step of its group's scale (int8, int4), or 2**-4 of itself and at least half
of the smallest step (fp8); then comes one rounding to the values' dtype (tests/exchange/test_codec.py).
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

FP8_CAPABILITY = (8, 9)
"""Compute capability of the first GPUs that convert to float8."""

QUANTIZERS = ("none", *_LARGEST)


@dataclass(frozen=True)
class Codec:
    """Values (n,) of a floating dtype to bytes and back."""

    quantizer: str = "none"
    """none (the values themselves), fp8 (e4m3) or int8, a byte a value, int4, half a byte; and a scale a group."""

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
        quantised = _WRITE[self.quantizer](groups / scales)
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
        return math.ceil(count / GROUP) * (4 + (GROUP // 2 if self.quantizer == "int4" else GROUP))

    def _scales(self, groups: Tensor) -> Tensor:
        """Scale of each group, (groups, 1) float32; 1 for a group of zeros."""
        largest = groups.abs().amax(dim=1, keepdim=True)
        return torch.where(largest > 0, largest / _LARGEST[self.quantizer], torch.ones_like(largest))


@cache
def _kernels(device: torch.device, quantizer: str) -> Any:
    """The module with one kernel each for a GPU that has them; None where the plain form below is used."""
    if device.type != "cuda" or find_spec("triton") is None:
        return None
    if quantizer == "fp8" and torch.cuda.get_device_capability(device) < FP8_CAPABILITY:
        return None
    kernels = import_module("otil_exp.exchange.codec_kernels")
    return kernels if quantizer in kernels.QUANTIZERS else None


def _pack_nibbles(groups: Tensor) -> Tensor:
    """Integers -7..7 (groups, GROUP) to two a byte, the even ones low."""
    shifted = (groups.round().clamp(-7, 7) + 8).to(torch.uint8)
    return shifted[:, ::2] | shifted[:, 1::2] << 4


def _unpack_nibbles(packed: Tensor) -> Tensor:
    return torch.stack([packed & 15, packed >> 4], dim=-1).flatten(1).float() - 8


_WRITE: dict[str, Callable[[Tensor], Tensor]] = {
    "fp8": lambda groups: groups.to(torch.float8_e4m3fn).view(torch.uint8),
    "int8": lambda groups: groups.round().clamp(-127, 127).to(torch.int8).view(torch.uint8),
    "int4": _pack_nibbles,
}
"""Scaled values (groups, GROUP) to bytes (groups, n)."""

_READ: dict[str, Callable[[Tensor], Tensor]] = {
    "fp8": lambda quantised: quantised.view(torch.float8_e4m3fn).float(),
    "int8": lambda quantised: quantised.view(torch.int8).float(),
    "int4": _unpack_nibbles,
}
"""And back, float32."""


def _grouped(values: Tensor) -> Tensor:
    """Pad values (n,) with zeros to whole groups: (groups, GROUP)."""
    missing = -values.numel() % GROUP
    return torch.nn.functional.pad(values, (0, missing)).view(-1, GROUP)
