"""What a codec loses is bounded, value by value, and does not add up where it sends changes."""

import pytest
import torch

from otil_exp.exchange import Codec

QUANTIZERS = ["none", "fp8", "int8", "int4"]


def sent(codec, values):
    encoded = codec.encode(values)
    assert encoded.dtype == torch.uint8
    assert len(encoded) == codec.size(len(values), values.dtype)
    return codec.decode(encoded, len(values), values.dtype)


def wild(count, dtype, seed=0):
    """Values over six orders of magnitude, with zeros and a whole group of zeros."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(count, generator=generator) * 10 ** (4 * torch.rand(count, generator=generator) - 3)
    values[::7] = 0
    values[128:256] = 0
    return values.to(dtype)


def bound(quantizer, values):
    """The most that each value (n,) may be off, worked out in float64.

    Half a step of the group's scale (int8, int4); three bits of mantissa, rounded, or half of the
    smallest float8 (fp8). Then one rounding to the dtype: half of its last bit, which does not shrink
    any more among its smallest numbers.
    """
    exact = values.double()
    if quantizer == "none":
        return torch.zeros_like(exact)
    padded = torch.nn.functional.pad(exact.abs(), (0, -len(exact) % 128)).view(-1, 128)
    scales = padded.amax(dim=1, keepdim=True) / {"fp8": 448, "int8": 127, "int4": 7}[quantizer]
    scales = scales.expand(-1, 128).flatten()[: len(exact)]
    lost = torch.maximum(exact.abs() / 16, scales / 2**10) if quantizer == "fp8" else scales / 2
    lost = lost * (1 + 1e-6)  # scales are float32
    finfo = torch.finfo(values.dtype)
    return lost + torch.maximum(
        (exact.abs() + lost) * finfo.eps / 2, torch.tensor(finfo.smallest_normal * finfo.eps / 2)
    )


@pytest.mark.parametrize("size", [1.0, 1e-6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("quantizer", QUANTIZERS)
def test_no_value_is_off_by_more_than_its_bound(quantizer, dtype, size):
    values = wild(1000, dtype) * size
    lost = (sent(Codec(quantizer), values).double() - values.double()).abs()
    assert (lost <= bound(quantizer, values)).all()
    assert quantizer == "none" or lost.max() > 0.2 * bound(quantizer, values).max()  # the bound is not idle


def test_int8_rounds_to_a_127th_of_the_groups_largest_value():
    values = torch.zeros(130)
    values[:4] = torch.tensor([127.0, 1.4, -1.6, 0.5])  # scale 1; 0.5 rounds to even
    values[128:] = torch.tensor([0.127, 0.0014])  # a group of its own, scale 0.001
    torch.testing.assert_close(
        sent(Codec("int8"), values)[[0, 1, 2, 3, 128, 129]], torch.tensor([127, 1, -2, 0, 0.127, 0.001])
    )


def test_int4_rounds_to_a_seventh_of_the_groups_largest_value():
    values = torch.zeros(128)
    values[:5] = torch.tensor([7.0, -7.0, 1.4, -2.6, 0.4])  # scale 1
    assert sent(Codec("int4"), values)[:6].tolist() == [7, -7, 1, -3, 0, 0]


def test_fp8_keeps_three_bits_of_mantissa():
    values = torch.zeros(128)
    values[:4] = torch.tensor([448.0, 17.5, 19.5, 0.007])  # scale 1; steps of 2 from 16 to 32, of 2**-9 near 0
    assert sent(Codec("fp8"), values)[:4].tolist() == [448, 18, 20, 4 * 2**-9]


@pytest.mark.parametrize(("quantizer", "expected"), zip(QUANTIZERS, (2000, 8 * 132, 8 * 132, 8 * 68), strict=True))
def test_a_byte_or_half_a_byte_a_value_and_a_scale_for_128_of_them(quantizer, expected):
    assert Codec(quantizer).size(1000, torch.float16) == expected


@pytest.mark.parametrize("quantizer", ["fp8", "int8", "int4"])
def test_errors_of_changes_do_not_add_up(quantizer):
    """The receiver holds what was sent; a change is against that, so what is off is what one change loses."""
    codec, generator = Codec(quantizer, residual=True), torch.Generator().manual_seed(1)
    value, held = torch.randn(512, generator=generator), torch.zeros(512)
    for _ in range(50):
        value = value + 0.1 * torch.randn(512, generator=generator)
        change = value - held
        held = held + sent(codec, change)
        assert ((held - value).abs() <= bound(quantizer, change) + 1e-6).all()
    assert (held - value).abs().max() < (sent(Codec(quantizer), value) - value).abs().max() / 2


def test_a_codec_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="none, fp8, int8, int4"):
        Codec("zip")
    with pytest.raises(ValueError, match="codec=residual"):
        Codec("none", residual=True)
