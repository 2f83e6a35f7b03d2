"""What a codec loses is bounded, value by value, and does not add up where it sends changes."""

import pytest
import torch

from codec_bounds import bound
from otil_exp.exchange import Codec

QUANTIZERS = ["none", "fp8", "int8", "int4", "int2", "int1"]


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


def test_int2_is_half_or_twice_the_groups_mean_magnitude():
    values = torch.tensor([0.5, -0.5, 4.0, -4.0]).repeat(32)  # mean magnitude 2.25
    assert sent(Codec("int2"), values)[:4].tolist() == [1.125, -1.125, 4.5, -4.5]


def test_int1_is_the_groups_mean_magnitude():
    values = torch.tensor([1.0, -3.0]).repeat(64)
    assert sent(Codec("int1"), values)[:2].tolist() == [2, -2]


@pytest.mark.parametrize("quantizer", QUANTIZERS)
def test_a_group_of_zeros_stays_one(quantizer):
    assert sent(Codec(quantizer), torch.zeros(200)).eq(0).all()


@pytest.mark.parametrize(
    ("quantizer", "expected"),
    [("int4", 0x91F8), ("int2", 0b11101111), ("int1", 0b11101101_11111111)],  # two bytes, the first one lowest
)
def test_the_first_of_the_values_of_a_byte_lies_lowest(quantizer, expected):
    values = {
        "int4": [0, 7, -7, 1.4],  # -7 to 7 are 1 to 15: 8, 15, 1, 9
        "int2": [8, 8, -8, 8, -0.5, -0.5, -0.5, -0.5],  # bits: large, not negative
        "int1": [1, 1, 1, 1, 1, 1, 1, 1, 1, -1, 1, 1, -1, 1, 1, 1],
    }[quantizer]
    encoded = Codec(quantizer).encode(torch.tensor(values).repeat(128 // len(values)))
    assert encoded[4].item() + 256 * encoded[5].item() == expected


@pytest.mark.parametrize(
    ("quantizer", "expected"), zip(QUANTIZERS, (2000, *(8 * (4 + n) for n in (128, 128, 64, 32, 16))), strict=True)
)
def test_bits_a_value_and_a_scale_for_128_of_them(quantizer, expected):
    assert Codec(quantizer).size(1000, torch.float16) == expected


@pytest.mark.parametrize("quantizer", QUANTIZERS[1:])
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
    with pytest.raises(ValueError, match="none, fp8, int8, int4, int2, int1"):
        Codec("zip")
    with pytest.raises(ValueError, match="codec=residual"):
        Codec("none", residual=True)
