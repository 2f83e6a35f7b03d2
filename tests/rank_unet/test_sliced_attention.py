"""Which kernel attends to the text, and that keys of the other slices stay while the own are written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from diffusers.models.attention_processor import Attention

from otil_exp.rank_unet.sliced import attention
from otil_exp.rank_unet.sliced.attention import CrossAttention, SelfAttention
from otil_exp.rank_unet.sliced.slices import Slices

CPU = torch.device("cpu")
WIDTH, HEADS = 64, 2


@pytest.fixture(autouse=True)
def _own_random_numbers() -> Iterator[None]:
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        yield


def layer(text_width: int | None = None) -> Attention:
    return Attention(WIDTH, text_width, heads=HEADS, dim_head=WIDTH // HEADS).eval()


def alone() -> Slices:
    return Slices(index=0, count=1, group=None, device=CPU)


def test_our_kernel_is_for_half_precision_short_texts_and_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in, as it needs a GPU: it is called with what PyTorch's attention is called with, and nowhere else."""
    calls = list[torch.Size]()

    def kernel(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        calls.append(key.shape)
        return attention._scaled_dot_product(query, key, value)

    monkeypatch.setattr(attention, "_kernel", lambda device, width: kernel)
    plain = layer(text_width=24)
    for dtype, tokens, used in [(torch.bfloat16, 77, 1), (torch.bfloat16, 129, 0), (torch.float32, 77, 0)]:
        ours = CrossAttention(plain.to(dtype), alone())
        x, text = torch.randn(1, 10, WIDTH, dtype=dtype), torch.randn(1, tokens, 24, dtype=dtype)
        compiled = torch.compile(ours, fullgraph=True, dynamic=False, backend="eager")
        calls.clear()
        found = compiled(x, encoder_hidden_states=text)
        assert len(calls) == used
        torch.testing.assert_close(found, plain(x, encoder_hidden_states=text))
        calls.clear()
        torch.testing.assert_close(ours(x, encoder_hidden_states=text), found)
        assert not calls
    torch.compiler.reset()


def test_there_is_no_kernel_without_a_gpu_or_for_odd_heads() -> None:
    assert attention._kernel(CPU, 64) is None
    assert attention._kernel(torch.device("cuda"), 40) is None


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
