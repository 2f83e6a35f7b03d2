"""The report as one HTML file that needs nothing else but the full-size pictures it links to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from otil_exp import __version__
from otil_exp.report.best import takes_part
from otil_exp.report.collect import Run
from otil_exp.report.columns import CORE, PERCEPTUAL, PSNR, SENT, STEP_MS, Column, columns
from otil_exp.report.comparable import basis, machine
from otil_exp.report.figures import figures
from otil_exp.report.header import GLOSSARY, command, shared_facts, versions
from otil_exp.report.paired import Difference, against_best
from otil_exp.report.pictures import GAIN, prompt_rows
from otil_exp.report.plots import step_costs, swatch, tradeoff
from otil_exp.report.projection_tables import TITLE, Section
from otil_exp.report.published import Published
from otil_exp.report.walltime import wall_times
from otil_exp.report.warn import numbers, warnings

STEP_TITLE = (
    "Steps by kind: time of rank 0 (median, quartiles, 5 % to 95 %) and bytes a rank hands to its peers (mean, "
    "logarithmic above 1 kB)"
)

LONG_PROMPT = 140
"""Characters of a prompt that are shown before it is folded."""


@dataclass(frozen=True)
class Plot:
    """A plot with what a reader who cannot see it is told."""

    title: str
    svg: str


def render(
    runs: Sequence[Run],
    page_folder: Path,
    side: int,
    limit: int | None = None,
    *,
    published: Published | None = None,
    projection: Section | None = None,
) -> str:
    """The page of these runs, to be written into page_folder; prompts, errors and labels are escaped.

    side: longest side of the small pictures, in pixels. limit: most prompts shown; None: what makes no huge page.
    published: what papers report, for a section of its own.
    projection: of the runs to other links, where it was asked for.
    """
    shown = columns(runs)
    by_column = [figures(runs, column) for column in shown]
    return _template().render(
        title=", ".join(dict.fromkeys(str(run.config.get("name", run.folder.path.parent.name)) for run in runs)),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
        runs=runs,
        shared=shared_facts(runs),
        commands=command(runs),
        glossary=GLOSSARY,
        warnings=warnings(runs, [column for column in shown if column.core]),
        columns=shown,
        table=list(zip(runs, zip(*by_column, strict=True), strict=True)) if shown else [(run, ()) for run in runs],
        paired=_paired(runs, shown),
        published=published,
        projection=projection,
        projection_title=TITLE,
        plots=_plots(runs),
        steps=Plot(STEP_TITLE, svg) if (svg := step_costs(runs)) else None,
        walltime=wall_times(runs),
        pictures=prompt_rows(runs, page_folder, side, limit),
        side=side,
        gain=GAIN,
        long_prompt=LONG_PROMPT,
        machine=machine,
        swatch=swatch,
        versions=versions,
    )


def _paired(runs: Sequence[Run], shown: Sequence[Column]) -> list[tuple[Column, dict[int, Difference | None]]]:
    """Columns with, by run, how far it is from the best over the same prompts."""
    found = [(column, against_best(runs, column)) for column in shown if column.core]
    return [(column, apart) for column, apart in found if apart]


def _plots(runs: Sequence[Run]) -> list[Plot]:
    """Cost against quality for each set of runs whose quality can be compared; bytes where no time means anything."""
    by_key = {column.key: column for column in CORE}
    perceptual = next((key for key in PERCEPTUAL if any(run.value(key) is not None for run in runs)), None)
    found = []
    for quality in filter(None, (PSNR, by_key.get(perceptual or ""))):
        groups: dict[tuple[str, ...], list[Run]] = {}
        for run in runs:
            if run.value(quality.key) is not None and not run.is_reference:
                groups.setdefault(basis(run, quality.key), []).append(run)
        for group in groups.values():
            keys = {run.picture_key for run in group}
            references = [run for run in runs if run.is_reference and run.picture_key in keys]
            cost = STEP_MS if any(takes_part(run, STEP_MS) for run in group) else SENT
            svg = tradeoff([*references, *group], cost, quality)
            found += [Plot(f"{cost.header} against {quality.header}, {numbers(group)}", svg)] if svg else []
    return found


def _template() -> Any:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("template.html.j2")
