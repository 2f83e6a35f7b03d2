"""The exchange of layer context on real ranks, over made-up layers: what arrives where, and when."""

from types import SimpleNamespace

import pytest
import torch
from torch import distributed as dist

from otil_exp.choices import Halos, Overlap, ScoreOn
from otil_exp.exchange import BlockGrid, Codec, ContextExchange, Selection
from ranks import run_ranks

pytestmark = pytest.mark.ranks

GRID = BlockGrid(rows=8, width=8, block_size=2)
"""4 x 4 blocks: 0..3 and 12..15 at the edges."""

SLICES = 2
TOKENS, HALO = (1, 64, 4), (2, 1, 3, 1, 8)


class Layers:
    """One self-attention and one convolution whose context says whose it is, of which step and where."""

    def __init__(self, rank):
        self.rank = rank
        self.keys_values = self._held(TOKENS)
        self.halos = self._held(HALO)

    def _held(self, shape):
        size = torch.Size(shape).numel()
        buffers, fresh = torch.zeros(SLICES, size), torch.zeros(size)
        return SimpleNamespace(shapes=[shape], buffers=buffers, fresh=fresh, forecast=None)

    def compute(self, step, synchronous=False):
        """What the layers of a step leave: in a synchronous one everybody's context, else their own."""
        for held in (self.keys_values, self.halos):
            if synchronous:
                for rank in range(SLICES):
                    held.buffers[rank] = self.context(rank, step, held)
            else:
                held.fresh.copy_(self.context(self.rank, step, held))

    @staticmethod
    def context(rank, step, held):
        return 100000 * rank + 1000 * step + torch.arange(held.fresh.numel(), dtype=torch.float32)


def exchange(rank, layers, k, **settings):
    selection = {"score": "l2", "polling": False} | settings.pop("selection", {})
    return ContextExchange(
        GRID,
        layers.keys_values,
        layers.halos,
        Selection(k=k, **selection),
        slice_index=rank,
        slices=SLICES,
        group=dist.group.WORLD,
        **settings,
    )


def latents(moved, step):
    """A latent (1, 4, 16, 8) in which the given blocks of slice 0 and of slice 1 move with the steps."""
    whole = torch.ones(1, 4, 16, 8)
    for index, blocks in enumerate(moved):
        for block in blocks:
            row, column = 8 * index + 2 * (block // 4), 2 * (block % 4)
            whole[..., row : row + 2, column : column + 2] += step
    return whole


def known(layers, rank):
    """What a rank knows of the slice of `rank`: steps of the tokens as an 8 x 8 map, and of the halos (2, 8)."""
    tokens, halos = layers.keys_values.buffers[rank].view(8, 8, 4), layers.halos.buffers[rank].view(2, 3, 8)
    offset = 100000 * rank
    tokens = (tokens - offset - torch.arange(256.0).view(8, 8, 4)) / 1000
    halos = (halos - offset - torch.arange(48.0).view(2, 3, 8)) / 1000
    assert (tokens == tokens[..., :1]).all()
    assert (halos == halos[:, :1]).all()
    return tokens[..., 0].round().int().tolist(), halos[:, 0].round().int().tolist()


def chosen_blocks(rank, halos=Halos.chosen):
    """Two silent steps: block 2 (top edge) and 9 (inner) of slice 0, 15 (bottom edge) and 6 of slice 1."""
    layers = Layers(rank)
    ex, seen = exchange(rank, layers, k=2, selection={"halos": halos}), []
    for step, synchronous in enumerate((True, False, False)):
        ex.before_step(synchronous)
        if not synchronous:
            seen.append(known(layers, 1 - rank))
        layers.compute(step, synchronous)
        ex.after_step(latents([(2, 9), (15, 6)], step), synchronous)
    ex.receive()
    return [*seen, known(layers, 1 - rank)]


def token_map(blocks, step):
    """Tokens of the given blocks at a step, everything else at step 0."""
    return [[step if 4 * (row // 2) + column // 2 in blocks else 0 for column in range(8)] for row in range(8)]


def test_the_blocks_that_moved_arrive_in_all_layers_and_the_rest_stays():
    of_slice_1, of_slice_0 = run_ranks(SLICES, chosen_blocks)
    for step in (0, 1, 2):  # in step s + 1 a rank reads what was sent after step s
        assert of_slice_0[step] == (token_map({2, 9}, step), [[0] * 4 + [step] * 2 + [0] * 2, [0] * 8])
        assert of_slice_1[step] == (token_map({15, 6}, step), [[0] * 8, [0] * 6 + [step] * 2])


def test_halo_rows_of_all_blocks_can_be_sent_every_time():
    for slice_index, result in zip((1, 0), run_ranks(SLICES, chosen_blocks, Halos.all), strict=True):
        blocks = ({2, 9}, {15, 6})[slice_index]
        assert result == [(token_map(blocks, step), [[step] * 8] * 2) for step in (0, 1, 2)]


def ages(rank, overlap, kinds, every=1):
    """The steps at which the context was computed that each step reads, all blocks being sent."""
    layers = Layers(rank)
    ex, seen = exchange(rank, layers, k=GRID.count, overlap=overlap, every=every), []
    for step, synchronous in enumerate(kinds):
        ex.before_step(synchronous)
        if not synchronous:
            (tokens, halos) = known(layers, 1 - rank)
            (age,) = {value for row in tokens + halos for value in row}
            seen.append((step, age))
        layers.compute(step, synchronous)
        ex.after_step(latents([(), ()], step), synchronous)
    ex.receive()
    return seen


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        (Overlap.none, [(1, 0), (2, 1), (3, 2), (5, 4), (6, 5)]),
        (Overlap.step, [(1, 0), (2, 0), (3, 1), (5, 4), (6, 4)]),  # never older again after the synchronous step 4
    ],
)
def test_what_was_sent_is_used_in_the_next_step_or_one_later(overlap, expected):
    kinds = (True, False, False, False, True, False, False)
    assert run_ranks(SLICES, ages, overlap, kinds) == [expected] * SLICES


def test_blocks_can_be_sent_every_so_many_steps():
    kinds = (True, *[False] * 7)  # sent after steps 3 and 6
    expected = [(1, 0), (2, 0), (3, 0), (4, 3), (5, 3), (6, 3), (7, 6)]
    assert run_ranks(SLICES, ages, Overlap.none, kinds, 3) == [expected] * SLICES


def coded(rank, quantizer, residual):
    """How far what the peer holds of this rank, and what this rank believes it holds, are from the truth."""
    layers = Layers(rank)
    ex = exchange(rank, layers, k=GRID.count, codec=Codec(quantizer, residual))
    for step, synchronous in enumerate((True, False, False, False)):
        ex.before_step(synchronous)
        layers.compute(step, synchronous)
        ex.after_step(latents([(), ()], step), synchronous)
    ex.receive()
    held = layers.keys_values
    return (held.buffers[1 - rank] - layers.context(1 - rank, 3, held)).abs().max().item(), held.buffers[rank]


def test_changes_cost_less_accuracy_than_values():
    """Values up to 103255: an int8 step of a value is about 800; changes are 1000: a step is 8."""
    values, changes = run_ranks(SLICES, coded, "int8", False), run_ranks(SLICES, coded, "int8", True)
    assert max(lost for lost, _ in changes) <= 1000 / 254 * 1.01
    assert max(lost for lost, _ in values) <= 103255 / 254 * 1.01
    assert min(lost for lost, _ in values) > 1


def watched(rank, score_on):
    """Blocks are chosen by K/V: only that of block 9 changes from step to step."""
    layers = Layers(rank)
    ex = exchange(rank, layers, k=2, selection={"score_on": score_on, "score": "cosine"})
    first = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    second = first.clone()
    for token in (4 * 8 + 2, 4 * 8 + 3, 5 * 8 + 2, 5 * 8 + 3):  # block 9: rows 4, 5, columns 2, 3
        second[token] = -second[token]
    ex.before_step(True)
    layers.keys_values.buffers.copy_(first.flatten().expand(SLICES, -1))
    ex.after_step(latents([(), ()], 0), True)
    ex.before_step(False)
    layers.keys_values.fresh.copy_(second.flatten())
    ex.after_step(latents([(), ()], 0), False)
    ex.receive()
    return layers.keys_values.buffers[1 - rank].view(64, 4).ne(first).any(dim=1).nonzero().flatten().tolist()


@pytest.mark.parametrize("score_on", [where for where in ScoreOn if where is not ScoreOn.latent])
def test_blocks_can_be_chosen_by_a_layer(score_on):
    assert run_ranks(SLICES, watched, score_on) == [[34, 35, 42, 43]] * SLICES
