"""Which elements of the layers belong to a block, by plain counting over rows and columns."""

import pytest
import torch

from otil_exp.exchange import BlockGrid, check_blocks, split_budget
from otil_exp.exchange.context_map import edge_blocks, map_halos, map_keys_values

SLICE = BlockGrid(rows=4, width=8, block_size=2)
"""2 x 4 blocks, numbered 0 1 2 3 / 4 5 6 7."""

SDXL_ON_EIGHT = BlockGrid(rows=16, width=128, block_size=8)
"""1024 x 1024 on 8 ranks: slices of 16 rows; 4 rows of the 32 x 32 map."""


def elements(index_map, block):
    """The elements of a block, in no order."""
    return {run * index_map.run + i for run in index_map.rows[block].tolist() for i in range(index_map.run)}


def test_a_block_owns_the_tokens_under_it_in_both_halves_of_a_batch():
    index_map = map_keys_values(SLICE, [(2, 32, 6)])
    tokens = {(batch, row, column) for batch in (0, 1) for row in (2, 3) for column in (2, 3)}  # block 5
    expected = {((batch * 4 + row) * 8 + column) * 6 + c for batch, row, column in tokens for c in range(6)}
    assert elements(index_map, 5) == expected


def test_a_second_layer_follows_the_first_one():
    index_map = map_keys_values(SLICE, [(1, 32, 2), (1, 8, 2)])  # full and half resolution
    second = {element - 64 for element in elements(index_map, 6) if element >= 64}
    assert second == {2 * (4 + 2), 2 * (4 + 2) + 1}  # one token: row 1, column 2 of 2 x 4


def test_blocks_under_one_cell_share_its_channels_of_keys_and_of_values():
    """At a quarter of the resolution a cell covers 4 blocks of 2 x 2; of 8 K and 8 V channels each owns 2 and 2."""
    index_map = map_keys_values(SLICE, [(1, 2, 16)])
    assert elements(index_map, 0) == {0, 1, 8, 9}
    assert elements(index_map, 1) == {2, 3, 10, 11}
    assert elements(index_map, 4) == {4, 5, 12, 13}  # below block 0
    assert elements(index_map, 7) == {16 + 6, 16 + 7, 16 + 14, 16 + 15}


def test_a_halo_row_belongs_to_the_outermost_blocks():
    assert edge_blocks(BlockGrid(rows=6, width=4, block_size=2)) == [0, 1, 4, 5]
    index_map = map_halos(BlockGrid(rows=6, width=4, block_size=2), [(2, 1, 3, 1, 4)])
    assert elements(index_map, 1) == {channel * 4 + column for channel in range(3) for column in (2, 3)}
    assert elements(index_map, 2) == {12 + channel * 4 + column for channel in range(3) for column in (0, 1)}


def test_a_slice_of_one_row_of_blocks_sends_both_halos_with_a_block():
    index_map = map_halos(BlockGrid(rows=2, width=4, block_size=2), [(2, 1, 1, 1, 4)])
    assert elements(index_map, 0) == {0, 1, 4, 5}


def test_blocks_side_by_side_in_a_cell_share_a_halo_cells_channels():
    index_map = map_halos(SLICE, [(2, 1, 4, 1, 2)])  # two cells of four channels
    assert elements(index_map, 0) == {0, 2}  # channels 0, 1 of cell 0
    assert elements(index_map, 3) == {5, 7}  # channels 2, 3 of cell 1
    assert elements(index_map, 6) == {8 + 1, 8 + 3}


@pytest.mark.parametrize("grid", [SLICE, SDXL_ON_EIGHT, BlockGrid(rows=16, width=128, block_size=1)])
def test_every_element_belongs_to_one_block_and_every_block_owns_equally_many(grid):
    attention = [(1, grid.rows // f * (grid.width // f), 64 * f) for f in (1, 2, 4) for _ in range(2)]
    halos = [(2, 1, 16 * f, 1, grid.width // f) for f in (1, 2, 4)]
    for index_map, shapes in ((map_keys_values(grid, attention), attention), (map_halos(grid, halos), halos)):
        total = sum(torch.Size(shape).numel() for shape in shapes)
        assert sorted(index_map.rows.flatten().tolist()) == list(range(total // index_map.run))


def test_eight_ranks_share_the_lowest_map_of_sdxl_by_whole_tokens():
    """The 32 x 32 map: 4 rows a slice, a block of 8 x 8 latent pixels is 2 x 2 of its tokens."""
    index_map = map_keys_values(SDXL_ON_EIGHT, [(1, 4 * 32, 2560)])
    tokens = {element // 2560 for element in elements(index_map, 17)}  # second row of blocks, second column
    assert tokens == {2 * 32 + 2, 2 * 32 + 3, 3 * 32 + 2, 3 * 32 + 3}


def test_channels_that_blocks_cannot_share_are_refused():
    with pytest.raises(ValueError, match="larger preset.context.block_size"):
        map_keys_values(SLICE, [(1, 2, 6)])


@pytest.mark.parametrize(
    ("grid", "k", "expected"),
    [
        (BlockGrid(rows=32, width=128, block_size=8), 16, (8, 8)),  # 64 blocks, 32 of them at an edge
        (BlockGrid(rows=64, width=128, block_size=8), 32, (8, 24)),  # 128 blocks, 32 at an edge
        (BlockGrid(rows=64, width=128, block_size=8), 2, (1, 1)),
        (BlockGrid(rows=16, width=128, block_size=8), 5, (5, 0)),  # every block is at an edge
        (BlockGrid(rows=32, width=128, block_size=8), 64, (32, 32)),
    ],
)
def test_edge_and_inner_blocks_are_sent_in_proportion(grid, k, expected):
    assert split_budget(grid, k) == expected


def test_a_budget_that_leaves_one_kind_none_is_refused():
    with pytest.raises(ValueError, match="k.budget=2 or more"):
        split_budget(BlockGrid(rows=32, width=128, block_size=8), 1)


def test_a_block_that_cuts_through_cells_is_refused():
    with pytest.raises(ValueError, match="block_size=1, 2 or a multiple of 4"):
        check_blocks(BlockGrid(rows=24, width=24, block_size=6), lowest=4)
