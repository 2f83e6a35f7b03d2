import pytest
import torch

from otil_exp.exchange import BlockGrid, resolve_budget


def test_blocks_are_numbered_row_by_row():
    grid = BlockGrid(rows=2, width=4, block_size=2)
    #  0 1 | 2 3
    #  4 5 | 6 7
    latents = torch.arange(8.0).view(1, 1, 2, 4)
    assert grid.count == 2
    assert grid.split(latents).tolist() == [[[[0, 1], [4, 5]]], [[[2, 3], [6, 7]]]]


def test_a_block_holds_all_channels_of_its_place():
    latents = torch.stack([torch.arange(8.0).view(2, 4), 10 + torch.arange(8.0).view(2, 4)]).unsqueeze(0)
    assert BlockGrid(2, 4, 2).split(latents)[1].tolist() == [[[2, 3], [6, 7]], [[12, 13], [16, 17]]]


def test_blocks_go_where_the_caller_wants_them():
    latents, out = torch.arange(8.0).view(1, 1, 2, 4), torch.zeros(2, 1, 2, 2)
    assert BlockGrid(2, 4, 2).split(latents, out) is out
    assert out.tolist() == [[[[0, 1], [4, 5]]], [[[2, 3], [6, 7]]]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_join_undoes_split_bit_for_bit(dtype):
    grid = BlockGrid(rows=32, width=128, block_size=8)
    latents = torch.randn(1, 4, 32, 128, generator=torch.Generator().manual_seed(0)).to(dtype)
    joined = grid.join(grid.split(latents))
    assert joined.dtype == dtype
    assert joined.shape == latents.shape
    assert torch.equal(joined, latents)


def test_the_block_count_is_the_papers():
    assert BlockGrid(rows=32, width=128, block_size=8).count == 64  # 1024 x 1024 pixels, 4 slices
    assert BlockGrid(rows=64, width=128, block_size=8).count == 128


@pytest.mark.parametrize("grid", [BlockGrid(4, 8, 2), BlockGrid(4, 4, 4)])
def test_blocks_do_not_share_memory_with_latents(grid):
    latents = torch.zeros(1, 4, grid.rows, grid.width)
    blocks = grid.split(latents)
    joined = grid.join(blocks)
    latents.fill_(1)
    assert blocks.sum() == 0
    blocks.fill_(2)
    assert joined.sum() == 0


def test_a_block_that_does_not_tile_the_slice_is_refused_with_those_that_do():
    with pytest.raises(ValueError, match=r"block_size=5 .* 12x128 .* use block_size=1, 2 or 4$"):
        BlockGrid(rows=12, width=128, block_size=5)
    with pytest.raises(ValueError, match=r"block_size=0 "):
        BlockGrid(rows=12, width=128, block_size=0)
    with pytest.raises(ValueError, match=r"0x8 latent pixels is empty"):
        BlockGrid(rows=0, width=8, block_size=1)


@pytest.mark.parametrize(
    ("budget", "count", "k"),
    [
        (16, 64, 16),
        (16.0, 64, 16),
        (1, 64, 1),
        (64, 64, 64),
        (0.25, 64, 16),
        (0.25, 10, 3),  # 2.5: halves round up
        (0.24, 10, 2),
        (0.001, 64, 1),  # at least one
        (0.999, 64, 64),
        (float("inf"), 64, 64),
    ],
)
def test_a_budget_is_a_count_or_a_fraction_of_the_blocks(budget, count, k):
    assert resolve_budget(budget, count) == k


@pytest.mark.parametrize("budget", [0, -1, -0.5, 1.5, 65, float("nan"), float("-inf")])
def test_a_budget_outside_the_slice_is_refused_with_what_to_type(budget):
    with pytest.raises(ValueError, match=rf"k\.budget={budget:g} .* 1 to 64 blocks .* k=k16 or k\.budget=12"):
        resolve_budget(budget, 64)
