"""steps.csv as columns: the rows of the csv module, picked and counted."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from otil_exp.run_folder.steps import StepRow, Steps, append_steps, read_steps, write_steps
from otil_exp.run_folder.whole import BrokenFolderError

ROWS = [
    StepRow(rank, prompt, step, kind, 10.0 * prompt + step + rank / 4, 5_000_000_000 * step, 2 + rank, repeat)
    for prompt, repeat in ((3, 0), (4, 0), (4, 1))
    for rank in range(2)
    for step, kind in enumerate(("warmup", "steady", "final"))
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_steps(tmp_path / "steps.csv", ROWS[:6])
    append_steps(tmp_path / "steps.csv", ROWS[6:])
    return tmp_path / "steps.csv"


def test_rows_are_those_that_the_csv_module_reads(file: Path) -> None:
    steps = read_steps(file)
    with file.open(newline="") as lines:
        texts = list(csv.DictReader(lines))
    assert [{name: str(value) for name, value in row._asdict().items()} | {"ms": ""} for row in steps] == [
        text | {"ms": ""} for text in texts
    ]
    assert [row.ms for row in steps] == [float(text["ms"]) for text in texts]
    assert steps == ROWS
    assert steps[-1] == ROWS[-1]
    assert steps[2:5] == ROWS[2:5]
    assert {type(value) for row in steps for value in row} == {int, float, str}


def test_rows_are_picked_by_kind_rank_and_picture() -> None:
    steps = Steps.of(ROWS)
    assert steps.where(steps.of_kind("final")) == [row for row in ROWS if row.kind == "final"]
    assert len(steps.where(steps.of_kind("refresh"))) == 0
    own = steps.where(steps.column("rank") == 1)
    assert own == [row for row in ROWS if row.rank == 1]
    assert own.where(own.of_kind("steady")).column("bytes_sent").tolist() == [5_000_000_000] * 3
    pictures = steps.pictures()
    assert len(set(pictures.tolist())) == 3
    assert sorted(pictures.tolist()) == pictures.tolist()
    assert not Steps.of([])


def test_a_file_of_an_earlier_version_has_no_repetitions(file: Path) -> None:
    file.write_text("".join(line.rpartition(",")[0] + "\n" for line in file.read_text().splitlines()))
    assert read_steps(file) == [row._replace(repeat=0) for row in ROWS]


def test_a_file_that_has_begun_has_no_rows(file: Path) -> None:
    write_steps(file, [])
    assert read_steps(file) == []


@pytest.mark.parametrize(
    "line",
    ["0,0,0,steady,1.0,10,1", "0,0,0,steady,1.0,10,1,0,0", "", "0,0,x,steady,1.0,10,1,0", "0,1.5,0,final,1,1,1,0"],
)
def test_a_line_that_is_no_row_is_a_broken_file(file: Path, line: str) -> None:
    with file.open("a") as end:
        end.write(f"{line}\n")
    for complete in (True, False):
        with pytest.raises(BrokenFolderError, match=r"steps.csv is not whole"):
            read_steps(file, complete=complete)
