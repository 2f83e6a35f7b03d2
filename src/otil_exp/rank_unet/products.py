"""Matrix products of 8-bit floats: the linear layers of a UNet's transformer blocks, with one static scale a tensor.

    x ~ scale * e4m3(x / scale), W ~ scale' * e4m3(W / scale')        x W^T ~ scale scale' * e4m3(.) e4m3(.)^T

Weights are quantised once. The scale of a layer's input comes from `calibrating`: MARGIN times the largest magnitude it
has there on any rank is the largest that e4m3 holds. What is larger later is cut to that and counted.
Rounding to e4m3 keeps 3 bits of the mantissa, so a value is off by 1/16 of itself at most, down to 2^-6 of the scale;
a margin takes room from the smallest values: with 8 nothing is cut, and pictures are 1 to 3 dB worse than with 2
(benchmarks/fp8_products.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import distributed as dist
from torch import nn
from torch.nn import functional as F

FP8 = torch.float8_e4m3fn

LARGEST = torch.finfo(FP8).max
"""448."""

MARGIN = 2.0
"""How much larger than while calibrating an input may become before it is cut."""

COUNTED_TOGETHER = {
    **dict.fromkeys(("attn1.to_qkv", "attn1.to_q", "attn1.to_k", "attn1.to_v", "attn1.to_kv", "attn2.to_q"), None),
    "ff.net.0.proj": None,
    "ff.net.2": 1024,
}
"""Layers of a transformer block whose product fp8 makes faster, quantising included, at every size that SDXL has
(benchmarks/fp8_products.md): how many neighbours in a row of the input share a counter of what is cut; None: all of
them, since LayerNorm, which makes these inputs, sums over rows itself.

Outputs of attention come from a kernel that nothing can be joined to: quantising them takes longer than their products
gain. Keys and values of the text are computed once a picture."""

UNIT = 16
"""cuBLASLt takes fp8 matrices whose sides are multiples of this; others stay as they are."""


class Fp8Linear(nn.Module):
    """A linear layer whose product is one of 8-bit floats.

    What comes before the product are plain element-wise operations and a sum over each row, so that a compiler can put
    them into the kernel that makes the input.
    """

    weight: torch.Tensor
    """(N, K), e4m3."""
    scale: torch.Tensor
    """(), float32: of the input."""
    weight_scale: torch.Tensor
    """(), float32."""
    largest: torch.Tensor
    """(), float32: the input's largest magnitude while calibrating."""
    overflow: torch.Tensor | None
    """(rows of the input, counters of a row), int32: values that were cut. Made by the first call."""

    counts = True
    """Whether what is cut is counted; benchmarks turn it off to see what that takes."""

    calibrating = False
    """Whether calls look at their input and multiply it as it is."""

    def __init__(self, linear: nn.Linear, counted_together: int | None = None) -> None:
        """counted_together: neighbours in a row of the input that share a counter; None: all."""
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self._counted_together = math.gcd(counted_together or self.in_features, self.in_features)
        weight = linear.weight.detach().float()
        scale = scale_for(weight.abs().amax())
        self.register_buffer("weight", quantised(weight, scale), persistent=False)
        self.register_buffer("weight_scale", scale, persistent=False)
        self.register_buffer("scale", torch.ones_like(scale), persistent=False)
        self.register_buffer("largest", torch.zeros_like(scale), persistent=False)
        self.register_buffer("overflow", None, persistent=False)
        self.bias = linear.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (..., K), half precision or float32. Returns (..., N) in x's dtype."""
        rows = x.reshape(-1, self.in_features)
        if self.calibrating:
            self.largest.copy_(torch.maximum(self.largest, rows.abs().amax().float()))
            found = F.linear(rows, (self.weight.float() * self.weight_scale).to(x.dtype), self.bias)
        else:
            found = self._product(rows)
        return found.view(*x.shape[:-1], self.out_features)

    def _product(self, rows: torch.Tensor) -> torch.Tensor:
        if self.overflow is None:
            counters = (len(rows), self.in_features // self._counted_together)
            self.overflow = torch.zeros(counters, dtype=torch.int32, device=rows.device)
        scaled = rows.float() * self.scale.reciprocal()  # dividing takes GEGLU's kernel longer
        if self.counts:
            cut = (scaled.abs() > LARGEST).unflatten(1, (-1, self._counted_together))
            self.overflow.add_(cut.sum(dim=2, dtype=torch.int32))
        scales = self.scale, self.weight_scale
        return scaled_product(scaled.clamp(-LARGEST, LARGEST).to(FP8), self.weight, *scales, self.bias, rows.dtype)


def scaled_product(
    rows: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    weight_scale: torch.Tensor,
    bias: torch.Tensor | None,
    dtype: torch.dtype,
) -> torch.Tensor:
    """scale * weight_scale * rows @ weight^T + bias, of e4m3 (M, K) and (N, K): (M, N) in dtype, summed in float32.

    On a GPU by cuBLASLt. On a CPU the same operation of PyTorch takes 9 s for 512 x 128 x 384, so float32 stands in for
    e4m3 there, whose products it holds exactly.
    """
    if rows.device.type == "cpu":
        found = (F.linear(rows.float(), weight.float()) * (scale * weight_scale)).to(dtype)
        return found if bias is None else found + bias
    joined = bias if dtype is not torch.float32 else None  # cuBLASLt adds none to float32
    scales = {"scale_a": scale, "scale_b": weight_scale}
    found = torch._scaled_mm(rows, weight.t(), **scales, bias=joined, out_dtype=dtype, use_fast_accum=True)
    return found if bias is None or bias is joined else found + bias


def scale_for(largest: torch.Tensor, margin: float = 1.0) -> torch.Tensor:
    """The scale with which e4m3 holds `margin` times a magnitude; 1 for a tensor of zeros. (), float32."""
    largest = largest.float()
    return torch.where(largest > 0, largest * margin / LARGEST, torch.ones_like(largest))


def quantised(values: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """e4m3(values / scale), what is too large cut: PyTorch's own conversion makes it NaN."""
    return (values.float() / scale).clamp(-LARGEST, LARGEST).to(FP8)


class Fp8Products:
    """The layers of a UNet that multiply fp8; replaces them in place.

    Call it when all layers are what they are going to be (sliced, wrapped, merged), and before any graph is made.
    """

    def __init__(self, unet: nn.Module) -> None:
        self.layers: dict[str, Fp8Linear] = {}
        self.calibrated = False
        names = [name for name, _ in unet.named_modules()]  # names alone: a list of modules would keep what is replaced
        for name in names:
            module = unet.get_submodule(name)
            layer = _layer(name)
            if layer is not None and isinstance(module, nn.Linear) and _fits(module):
                self.layers[name] = Fp8Linear(module, COUNTED_TOGETHER[layer])
                parent, _, child = name.rpartition(".")
                setattr(unet.get_submodule(parent), child, self.layers[name])

    @contextmanager
    def calibrating(self, ranks: int) -> Iterator[None]:
        """Take the scales from the inputs of what is called within, on so many ranks: they get the same scales.

        Raises RuntimeError where an input was not finite.
        """
        for layer in self.layers.values():
            layer.calibrating = True
            layer.largest.zero_()
        try:
            yield
        finally:
            for layer in self.layers.values():
                layer.calibrating = False
        self._settle(self._largest_of_all(ranks))

    def multiplying(self) -> list[str]:
        """Layers of this rank that were called: beside merged projections distrifuser keeps those they are made of."""
        return sorted(name for name, layer in self.layers.items() if layer.overflow is not None)

    def overflow(self) -> dict[str, int]:
        """Values that were cut since calibration on this rank, by layer; layers without any are left out."""
        counts = {name: int(layer.overflow.sum()) for name, layer in self.layers.items() if layer.overflow is not None}
        return {name: count for name, count in counts.items() if count}

    def _largest_of_all(self, ranks: int) -> dict[str, float]:
        """By layer, the largest magnitude on any rank: those that cut a UNet by depth have different layers."""
        own = {name: float(layer.largest) for name, layer in self.layers.items()}
        everyone: list[dict[str, float]] = [own]
        if ranks > 1:
            everyone = [{} for _ in range(ranks)]
            dist.all_gather_object(everyone, own)
        if wrong := sorted({name for one in everyone for name, value in one.items() if not math.isfinite(value)}):
            raise RuntimeError(f"engine.products=fp8: the input of {wrong[0]} was not finite while calibrating")
        return {name: max(one.get(name, 0.0) for one in everyone) for name in own}

    def _settle(self, largest: dict[str, float]) -> None:
        for name, layer in self.layers.items():
            layer.scale.copy_(scale_for(torch.tensor(largest[name]), MARGIN))
            if layer.overflow is not None:
                layer.overflow.zero_()
        self.calibrated = True


def _layer(name: str) -> str | None:
    """Which of COUNTED_TOGETHER a layer of a UNet is."""
    plain = name.replace(".module.", ".")  # distrifuser's wrappers hold diffusers' layers so
    if ".transformer_blocks." not in f".{plain}":
        return None
    return next((layer for layer in COUNTED_TOGETHER if plain.endswith(f".{layer}")), None)


def _fits(linear: nn.Linear) -> bool:
    return linear.in_features % UNIT == 0 and linear.out_features % UNIT == 0
