"""A grid's references are read once, however many cells ask; counted in files opened, not in seconds."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from otil_exp.report.table import summary
from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.reference import References, find_reference
from run_folder.finished import finished

_counting: list[tuple[Path, Counter[str]]] = []


def _count(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _counting and isinstance(arguments[0], str):
        root, opened = _counting[-1]
        if arguments[0].startswith(f"{root}/"):
            opened[Path(arguments[0]).name] += 1


sys.addaudithook(_count)  # cannot be taken back; costs a look at an empty list


@contextmanager
def opened_below(root: Path) -> Iterator[Counter[str]]:
    """How often files below a folder are opened meanwhile, by their name."""
    opened: Counter[str] = Counter()
    _counting.append((root, opened))
    yield opened
    _counting.pop()


def grid_of(root: Path, cells: int) -> list[RunFolder]:
    finished(root / "ref", reference=True, prompts=3)
    return [finished(root / f"{i:04d}", pictures=False, prompts=3) for i in range(cells)]


@pytest.mark.parametrize("cells", [10, 40])
def test_reads_grow_with_the_cells(tmp_path: Path, cells: int) -> None:
    """A cell: its record, once by itself and once as what may be a reference. A reference: its pictures, once."""
    folders = grid_of(tmp_path, cells)
    references = References()
    with opened_below(tmp_path) as opened:
        assert {found.path.name for folder in folders if (found := references.of(folder))} == {"ref"}
    assert opened == {"record.json": 2 * cells + 1, "00.png": 1, "01.png": 1, "02.png": 1}


def test_a_table_reads_every_file_a_few_times(tmp_path: Path) -> None:
    """30 more cells cost 30 times what a cell costs: at most three looks at a file (what it says, its checksum)."""
    opened = []
    for cells in (10, 40):
        folders = grid_of(tmp_path / str(cells), cells)
        with opened_below(tmp_path / str(cells)) as counts:
            Console(quiet=True).print(summary(folders))
        opened.append(counts)
    few, many = opened
    more = {name: many[name] - few[name] for name in many}
    assert set(more) >= {"record.json", "metrics.json", "config.yaml", "steps.csv"}
    assert max(more.values()) <= 3 * 30


def test_prompts_are_matched_as_a_set(tmp_path: Path) -> None:
    """A reference may have more prompts, in any order; another text or seed of one is another picture."""
    finished(tmp_path / "ref", reference=True, prompts=4)
    prompts = [{"index": i, "text": f"prompt {i}", "seed": i} for i in (3, 1)]
    folder = finished(tmp_path / "run", pictures=False)
    folder.update_record(prompts=prompts)
    assert find_reference(folder) is not None
    folder.update_record(prompts=[*prompts, {"index": 0, "text": "prompt 0", "seed": 9}])
    assert find_reference(folder) is None


def test_a_reference_that_ends_later_is_found_once_the_grid_is_forgotten(tmp_path: Path) -> None:
    folder, references = finished(tmp_path / "run", pictures=False), References()
    assert references.of(folder) is None
    finished(tmp_path / "ref", reference=True)
    assert references.of(folder) is None
    references.forget(tmp_path)
    found = references.of(folder)
    assert found is not None
    assert references.of(RunFolder(found.path)) is None


@pytest.mark.parametrize(("plain", "quantised"), [("a", "b"), ("b", "a")])
def test_the_reference_whose_products_were_not_quantised_is_the_one(tmp_path: Path, plain: str, quantised: str) -> None:
    finished(tmp_path / quantised, reference=True, products={"kind": "fp8"})
    run = finished(tmp_path / "run", products={"kind": "fp8"})
    only = find_reference(run)
    assert only is not None
    assert only.path.name == quantised
    finished(tmp_path / plain, reference=True)
    both = find_reference(run)
    assert both is not None
    assert both.path.name == plain
