"""Projections as tables of words, which page, Markdown and terminal show alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from otil_exp.links.link import Links
from otil_exp.report.collect import Run
from otil_exp.report.markdown import escape, laid_out
from otil_exp.report.projection import ERROR, Answer, Projected, answers, project

TITLE = "Projection to other links"


@dataclass(frozen=True)
class WordTable:
    """A table of words."""

    title: str
    head: list[str]
    rows: list[list[str]]
    left: int
    """Columns from the first that are words; the others are figures."""


@dataclass(frozen=True)
class Section:
    """What is said of other links."""

    words: list[str]
    tables: list[WordTable]


def section(runs: Sequence[Run], links: Sequence[Links], measured_on: Links) -> Section:
    """The projection of these runs, made on the links measured_on, to the others."""
    projected = project(runs, links, measured_on)
    words = [
        "Projected, not measured: computation as in the runs, which are taken to have been made on "
        f"{measured_on.name}, "
        "and messages as long as the links' curves say; what travels behind computation counts where it is longer.",
        *(f"{one.name}: {'measured' if one.measured else 'not measured'}, {one.date}. {one.source}" for one in links),
        f"≈: the next one is nearer than {ERROR:.0%}, which a projection does not tell apart.",
    ]
    tables = [_seconds(projected, links), _answers(answers(projected, links))]
    return Section(words, [table for table in tables if table.rows])


def as_markdown(shown: Section) -> str:
    """The section at the end of a result page."""
    lines = ["", f"## {TITLE}", "", *(f"{escape(line)}  " for line in shown.words)]
    for table in shown.tables:
        rows = [[escape(cell) for cell in row] for row in table.rows]
        lines += ["", f"### {table.title}", "", *laid_out([escape(cell) for cell in table.head], rows, table.left - 1)]
    return "\n".join(lines)


def as_text(shown: Section) -> RenderableType:
    """The section in a terminal."""
    tables = []
    for table in shown.tables:
        made = Table(box=box.SIMPLE_HEAD, padding=0, title=f"{TITLE}: {table.title}")
        for index, name in enumerate(table.head):
            made.add_column(Text(name), justify="left" if index < table.left else "right")
        for row in table.rows:
            made.add_row(*map(Text, row))  # as typed: no markup
        tables.append(made)
    return Group(*(Text(line, style="yellow") for line in shown.words[:1]), *tables)


def _seconds(projected: Sequence[Projected], links: Sequence[Links]) -> WordTable:
    head = ["#", "run", "measured s", *(f"{one.name}, projected s" for one in links)]
    rows = []
    for one in projected:
        measured = "-" if one.measured_s is None else f"{one.measured_s:.3f}"
        cells = [f"{seconds:.3f}" for seconds in one.seconds] or [f"- ({one.reason})", *["-"] * (len(links) - 1)]
        rows.append([str(one.run.number), one.run.label, measured, *cells])
    return WordTable("seconds a picture", head, rows, left=2)


def _answers(found: Sequence[Answer]) -> WordTable:
    head = ["links", "GPUs", "PSNR at least", "fastest, projected", "s", "the next takes", "the next"]
    rows = [
        [
            one.links.name,
            str(one.world_size),
            "any" if one.bound_db is None else f"{one.bound_db:.0f} dB",
            one.fastest.label,
            f"{one.seconds:.3f}",
            "-" if one.second is None else f"{'' if one.told_apart else '≈ '}{one.margin:.2f}x",
            "-" if one.second is None else one.second.label,
        ]
        for one in found
    ]
    return WordTable("the fastest method by link and quality", head, rows, left=4)
