"""Several tensors in one collective: every bit arrives."""

import pytest
import torch

from otil_exp.rank_unet.sliced.packing import packed, unpacked
from otil_exp.rank_unet.sliced.slices import Slices
from places import place
from ranks import run_ranks

WIDE = [(torch.float32, dtype) for dtype in (torch.float16, torch.bfloat16, torch.float32)]
PAIRS = [*WIDE, (torch.float64, torch.float64)]
"""Dtypes of statistics, and of rows."""
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(tensor):
    return tensor.view(BITS[tensor.element_size()])


def odd_bits(dtype, shape, seed):
    """Random bits, among them, of each sign: infinities, quiet and signalling NaNs with payloads, subnormals."""
    generator = torch.Generator().manual_seed(seed)
    size = dtype.itemsize
    found = torch.randint(0, 256, (*shape, size), dtype=torch.uint8, generator=generator).view(BITS[size])[..., 0]
    mantissa = {torch.float16: 10, torch.bfloat16: 7, torch.float32: 23, torch.float64: 52}[dtype]
    exponent = ((1 << (8 * size - 1 - mantissa)) - 1) << mantissa
    odd = [0, 1, exponent, exponent | 1, exponent | 1 << (mantissa - 1), exponent | 5 << (mantissa - 3)]
    odd += [pattern - (1 << (8 * size - 1)) for pattern in odd]
    found.view(-1)[: len(odd)] = torch.tensor(odd, dtype=BITS[size])
    assert found.view(dtype).isnan().sum() >= 6
    return found.view(dtype)


def statistics_and_rows(dtypes, seed):
    """Rows as of channels_last activations: not contiguous."""
    statistics, rows = (odd_bits(dtype, (2, 1, 6, 1, 10), seed) for dtype in dtypes)
    return statistics, rows.transpose(2, 4).contiguous().transpose(2, 4)


@pytest.mark.parametrize("dtypes", PAIRS)
@pytest.mark.parametrize("seed", range(20))
def test_what_is_packed_is_unpacked_to_the_bit(dtypes, seed):
    slices = [statistics_and_rows(dtypes, 100 * seed + index) for index in range(3)]
    words = torch.stack([packed(own) for own in slices])
    for found, sent in zip(unpacked(words, slices[0]), zip(*slices, strict=True), strict=True):
        assert torch.equal(bits(found), torch.stack([bits(own) for own in sent]))


def test_half_a_word_is_refused():
    with pytest.raises(AssertionError, match="half a word"):
        packed([torch.zeros(2), torch.zeros(3, dtype=torch.float16)])


def gathered(rank, compiled):
    ranks = place(rank, split_batch=False)
    slices = Slices(index=rank, count=2, group=ranks.batch_group, device=ranks.device)
    gather = slices.gather_all
    if compiled:
        gather = torch.compile(gather, fullgraph=True, dynamic=False, backend="aot_eager")
    return [[bits(part) for part in gather(statistics_and_rows(dtypes, rank))] for dtypes in PAIRS]


@pytest.mark.ranks
@pytest.mark.parametrize("compiled", [False, True])
def test_every_rank_gets_the_bits_of_all(compiled):
    for found in run_ranks(2, gathered, compiled):
        for dtypes, parts in zip(PAIRS, found, strict=True):
            sent = zip(*(statistics_and_rows(dtypes, rank) for rank in range(2)), strict=True)
            for part, own in zip(parts, sent, strict=True):
                assert torch.equal(part, torch.stack([bits(tensor) for tensor in own]))
