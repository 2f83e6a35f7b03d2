"""Context in encoded bytes on real ranks: all hold the same, as close as the codec says, whatever came before."""

import pytest
import torch
from torch import distributed as dist

from codec_bounds import bound
from otil_exp.exchange import Codec
from otil_exp.exchange.coded import CodedContext
from ranks import run_ranks

pytestmark = pytest.mark.ranks

SLICES, COUNT, CUT = 3, 700, 256
"""Elements of a slice's context, sent in two parts."""

CODECS = [(name, True) for name in ("fp8", "int8", "int4", "int2", "int1")] + [("int8", False)]


def context(rank, steps):
    """A slice's context that moves a little in every step."""
    generator = torch.Generator().manual_seed(rank)
    value = torch.randn(COUNT, generator=generator)
    for _ in range(steps):
        yield value
        value = value + 0.1 * torch.randn(COUNT, generator=generator)


def work(rank):
    return {codec: [picture(rank, Codec(*codec)) for _ in range(2)] for codec in CODECS}


def picture(rank, codec):
    """After every step: what is held of all slices; the parts arrive in another order in every second step."""
    held = torch.full((SLICES, COUNT), float(rank))  # what was there before does not matter
    coded, seen = CodedContext(codec, held, slice_index=rank, group=dist.group.WORLD), []
    for step, fresh in enumerate(context(rank, 6)):
        coded.nothing_held = step == 0
        arrivals = [coded.send(start, end, fresh[start:end]) for start, end in ((0, CUT), (CUT, COUNT))]
        for arrival in arrivals[:: -1 if step % 2 else 1] * 2:  # waiting twice changes nothing
            arrival.wait()
        seen.append(held.clone())
    return seen


@pytest.fixture(scope="module")
def made():
    return run_ranks(SLICES, work)


@pytest.mark.parametrize("codec", CODECS)
def test_all_slices_hold_the_same_bytes_in_every_picture(made, codec):
    first = made[0][codec][0]
    for results in made:
        for seen in results[codec]:
            assert all(torch.equal(a, b) for a, b in zip(seen, first, strict=True))


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_held_is_off_by_what_the_last_change_lost(made, codec):
    """The first step sends values, as int8 or fp8; a later one what is missing, the last one's error included."""
    quantizer, residual = codec
    of_values = "fp8" if quantizer == "fp8" else "int8"
    for slice_index in range(SLICES):
        before = torch.zeros(COUNT)
        for step, (held, fresh) in enumerate(zip(made[0][codec][0], context(slice_index, 6), strict=True)):
            own, change = held[slice_index], residual and step > 0
            sent = fresh - before if change else fresh
            used = quantizer if change else of_values
            lost = torch.cat([bound(used, part) for part in (sent[:CUT], sent[CUT:])])
            assert ((own - fresh).abs() <= lost + 1e-6).all()
            assert (own != fresh).any()
            before = own
