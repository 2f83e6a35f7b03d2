"""The measurements that are experiments: every cell composes, and is prepared, on a machine without GPUs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from benchmarks.experiments import points
from otil_exp.conf_tree import options
from otil_exp.run_folder.cell import Cell

BENCHES = [name for name in options("experiment") if name.startswith("bench/") and name != "bench/base"]
PAGE = (Path(__file__).parents[2] / "docs" / "measuring.md").read_text(encoding="utf-8")


Cells = Callable[[str], list[Cell]]


@pytest.fixture(scope="module")
def cells_of(tmp_path_factory: pytest.TempPathFactory) -> Cells:
    """cells_of(experiment): its cells, composed once."""
    folder = tmp_path_factory.mktemp("bench")

    @cache
    def of(experiment: str) -> list[Cell]:
        found = points(experiment, f"output_dir={folder}", device_for=lambda kind, world_size: kind)
        return [point.cell for point in found]

    return of


@pytest.mark.parametrize("experiment", BENCHES)
def test_every_cell_of_a_measurement_is_one_that_can_be_run(experiment: str, cells_of: Cells) -> None:
    cells = cells_of(experiment)
    assert cells
    for cell in cells:
        one = cell.effective
        assert (one.mode.name, one.device.kind.name, one.model.name) == ("benchmark", "cuda", "sdxl_random")
        assert (one.height, one.benchmark.drop_extremes) == (one.width, 0)
        assert cell.folder.path.parent.name == experiment.replace("/", "_")


@pytest.mark.parametrize(
    ("experiment", "cells", "settings"),
    [
        ("bench/slices_2048", 10, {(2048, "cuda_graph", 1), (2048, "cuda_graph", 2)}),
        ("bench/compiled", 6, {(1024, "compiled", 1), (1024, "compiled", 2)}),
        ("bench/halves", 4, {(side, "cuda_graph", ranks) for side in (1024, 2048) for ranks in (1, 2)}),
        ("bench/eager", 2, {(1024, "eager", 2)}),
    ],
)
def test_sizes_engines_and_ranks_are_those_of_the_measurement(
    experiment: str, cells: int, settings: set[tuple[int, str, int]], cells_of: Cells
) -> None:
    found = cells_of(experiment)
    assert len({cell.folder.path.name for cell in found}) == cells
    effective = [cell.effective for cell in found]
    assert {(one.height, one.engine.name.name, one.topology.world_size) for one in effective} == settings


def test_the_page_lists_every_measurement() -> None:
    assert [name for name in BENCHES if f"`{name}`" not in PAGE] == []
