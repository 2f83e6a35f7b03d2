"""Keys of the other slices stay while the own are written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from diffusers.models.attention_processor import Attention

from otil_exp.rank_unet.sliced.attention import SelfAttention
from otil_exp.rank_unet.sliced.slices import Slices

CPU = torch.device("cpu")
WIDTH, HEADS = 64, 2


@pytest.fixture(autouse=True)
def _own_random_numbers() -> Iterator[None]:
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        yield


def layer() -> Attention:
    return Attention(WIDTH, heads=HEADS, dim_head=WIDTH // HEADS).eval()


def alone() -> Slices:
    return Slices(index=0, count=1, group=None, device=CPU)


class TwoSlices(Slices):
    """This slice above another one, whose keys and values are the own ones times ten."""

    def gather(self, own: torch.Tensor) -> torch.Tensor:
        return torch.stack([own, 10 * own])


def test_a_silent_step_reads_the_own_keys_of_now_and_the_others_of_then() -> None:
    slices = alone()
    two = TwoSlices.__new__(TwoSlices)
    two.__dict__ |= slices.__dict__ | {"count": 2, "others": torch.tensor([1])}
    plain = layer()
    ours = SelfAttention(plain, two)
    then, now = torch.randn(3, 6, WIDTH), torch.randn(3, 6, WIDTH)
    ours(then)
    ours.synchronous = False
    for _ in range(2):  # whatever the step before left in the own place
        ours(torch.randn(3, 6, WIDTH))
        found = ours(now)
    query, key, value = plain.to_q(now), plain.to_k(now), plain.to_v(now)
    key, value = torch.cat([key, 10 * plain.to_k(then)], 1), torch.cat([value, 10 * plain.to_v(then)], 1)
    query, key, value = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2).double() for t in (query, key, value))
    weights = torch.softmax(query @ key.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5, dim=-1)
    expected = plain.to_out[0]((weights @ value).transpose(1, 2).flatten(2).float())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
