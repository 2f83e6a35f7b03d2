"""What a codec may lose, value by value, worked out in float64."""

from __future__ import annotations

import torch

LARGEST = {"fp8": 448, "int8": 127, "int4": 7}


def bound(quantizer, values):
    """The most that each value (n,) may be off.

    Half a step of the group's scale (int8, int4); three bits of mantissa, rounded, or half of the
    smallest float8 (fp8); the distance to the group's mean magnitude (int1), or to half of it below it and
    to twice it above (int2). Then one rounding to the dtype: half of its last bit, which does not shrink
    any more among its smallest numbers.
    """
    exact = values.double()
    if quantizer == "none":
        return torch.zeros_like(exact)
    size = exact.abs()
    groups = torch.nn.functional.pad(size, (0, -len(exact) % 128)).view(-1, 128)

    def of_group(value):
        return value[:, None].expand(-1, 128).flatten()[: len(exact)]

    if quantizer in LARGEST:
        scales = of_group(groups.amax(dim=1)) / LARGEST[quantizer]
        lost = torch.maximum(size / 16, scales / 2**10) if quantizer == "fp8" else scales / 2
        lost = lost * (1 + 1e-6)  # scales are float32
    else:
        mean = of_group(groups.mean(dim=1))
        lost = (size - mean).abs() if quantizer == "int1" else _of_two_levels(size, mean)
        lost = lost + (size + mean) * 1e-6
    finfo = torch.finfo(values.dtype)
    return lost + torch.maximum((size + lost) * finfo.eps / 2, torch.tensor(finfo.smallest_normal * finfo.eps / 2))


def _of_two_levels(size, mean):
    lost = torch.where(size < mean, (size - mean / 2).abs(), (size - 2 * mean).abs())
    return torch.where((size - mean).abs() < 1e-6 * mean, mean, lost)  # there float32 may take either level
