"""published.yaml, checked and read: figures of papers, each with all that it depends on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException

FILE = Path(__file__).with_name("published.yaml")


@dataclass
class Paper:
    """Who says it."""

    title: str = MISSING
    """Name of the work and where it appeared."""

    source: str = MISSING
    """Where the figures were read."""

    second_hand: str | None = None
    """Who noted them, where that is not the paper itself; null for the paper's own."""


@dataclass
class Settings:
    """What a figure was made with; null: the source does not say."""

    model: str = MISSING
    """An architecture: sdxl, sd15, sd21."""

    height: int = 1024
    """Pixels."""

    width: int = 1024
    """Pixels."""

    num_inference_steps: int = 50
    scheduler: str | None = "ddim"
    guidance_scale: float | None = 5.0
    warmup_steps: int | None = None
    """As ours: index of the last synchronous step."""

    split_batch: bool | None = None
    """Whether the two halves of the CFG batch lived on different GPUs."""

    groupnorm: str | None = None
    """upstream: distrifuser's arithmetic."""

    k: float | None = None
    """Share of the blocks that was sent, of methods that select some."""

    pictures: int | None = None
    """How many pictures the scores are of."""


@dataclass
class Hardware:
    """What a time was measured on; null: the source does not say."""

    gpu: str | None = None
    interconnect: str | None = None
    torch: str | None = None
    """Version, as far as it is said."""

    engine: str | None = None
    """eager, cuda_graph, or another engine's name."""


@dataclass
class Row:
    """One line of a table."""

    method: str = MISSING
    """As the paper calls it."""

    gpus: int = MISSING

    ours: str | None = None
    """Method of ours that it is; null: none."""

    preset: dict[str, Any] = field(default_factory=dict)
    """Settings of that method that make it this line's."""

    settings: dict[str, Any] = field(default_factory=dict)
    """What of the table's settings is otherwise here."""

    figures: dict[str, float] = field(default_factory=dict)
    """Key -> value: those of metrics.json, in its units, or of `others`."""

    note: str | None = None


@dataclass
class Table:
    """A table, or a figure whose values are printed."""

    paper: str = MISSING
    name: str = MISSING
    settings: Settings = field(default_factory=Settings)
    hardware: Hardware = field(default_factory=Hardware)
    conventions: dict[str, str] = field(default_factory=dict)
    """Key of a figure -> how it was computed, where that is not what our metric of that key does."""

    note: str | None = None
    rows: list[Row] = field(default_factory=list)


@dataclass
class Published:
    """The whole file."""

    papers: dict[str, Paper] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)
    """Keys of figures that we do not measure under that key -> what they are."""

    tables: list[Table] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row with all that its table and paper say of it."""

    paper: Paper
    table: Table
    row: Row
    settings: Settings

    @property
    def title(self) -> str:
        """Work, table, method and GPUs in a phrase."""
        gpus = "1 GPU" if self.row.gpus == 1 else f"{self.row.gpus} GPUs"
        return f"{self.paper.title}, {self.table.name}: {self.row.method}, {gpus}"


def read_published(path: Path = FILE) -> Published:
    """The figures of a file. Raises ValueError for a key or a type that the schema does not have."""
    try:
        merged = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Published), OmegaConf.load(path)))
    except OmegaConfBaseException as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from error
    assert isinstance(merged, Published)
    return merged


def lines(published: Published) -> Iterator[Line]:
    """Every row beside its table's settings, in the order of the file."""
    for table in published.tables:
        for row in table.rows:
            settings = replace(table.settings, **row.settings)
            yield Line(paper=published.papers[table.paper], table=table, row=row, settings=settings)


@cache
def shipped() -> tuple[Published, tuple[Line, ...]]:
    """The file of the package and its lines."""
    published = read_published()
    return published, tuple(lines(published))
