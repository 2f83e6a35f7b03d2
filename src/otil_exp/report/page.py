"""The report as one HTML file that needs nothing else but the full-size pictures it links to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from otil_exp import __version__
from otil_exp.report.collect import Run
from otil_exp.report.columns import CORE, PERCEPTUAL, cells, columns
from otil_exp.report.comparable import machine, model, numbers, size, warnings
from otil_exp.report.pictures import GAIN, prompt_rows
from otil_exp.report.plots import step_costs, tradeoff

STEP_TITLE = (
    "Steps by kind: time of rank 0 (median, quartiles, 5 % to 95 %) and bytes a rank hands to its peers (mean, "
    "logarithmic above 1 kB)"
)


@dataclass(frozen=True)
class Plot:
    """A plot with what a reader who cannot see it is told."""

    title: str
    svg: str


def render(runs: Sequence[Run], page_folder: Path, side: int, limit: int | None = None) -> str:
    """The page of these runs, to be written into page_folder; prompts, errors and labels are escaped.

    side: longest side of the small pictures, in pixels. limit: most prompts shown; None for all.
    """
    shown = columns(runs)
    by_column = [cells(runs, column) for column in shown]
    rows = prompt_rows(runs, page_folder, side, limit)
    return _template().render(
        title=", ".join(dict.fromkeys(str(run.config.get("name", run.folder.path.parent.name)) for run in runs)),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
        runs=runs,
        shared=shared_facts(runs),
        warnings=warnings(runs),
        columns=shown,
        table=list(zip(runs, zip(*by_column, strict=True), strict=True)) if shown else [(run, ()) for run in runs],
        plots=_plots(runs),
        rows=rows,
        side=side,
        gain=GAIN,
        machine=machine,
        versions=versions,
    )


def shared_facts(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """What was run, where all runs agree; what differs is in the warnings."""
    begun = [run for run in runs if run.record and run.config]
    facts = {
        "model": {model(run) for run in begun},
        "size": {size(run) for run in begun},
        "steps": {str(run.config.get("num_inference_steps")) for run in begun},
        "guidance": {str(run.config.get("guidance_scale")) for run in begun},
        "scheduler": {str(run.config.get("scheduler")) for run in begun},
        "prompts": {str(len(run.prompts)) for run in begun},
        "machine": {machine(run) for run in begun},
        "versions": {versions(run) for run in begun},
    }
    return [(name, values.pop()) for name, values in facts.items() if len(values) == 1]


def versions(run: Run) -> str:
    """Package versions of a run: torch 2.11.0, diffusers 0.42.1, ..."""
    return ", ".join(f"{name} {version}" for name, version in run.record.get("versions", {}).items() if version)


def _plots(runs: Sequence[Run]) -> list[Plot]:
    """Time against quality for each set of comparable runs, then what steps cost."""
    by_key = {column.key: column for column in CORE}
    perceptual = next((key for key in PERCEPTUAL if any(run.value(key) is not None for run in runs)), None)
    found = []
    for key in dict.fromkeys(run.picture_key for run in runs):
        group = [run for run in runs if run.picture_key == key]
        for quality in filter(None, ("ref/psnr", perceptual)):
            column = by_key[quality]
            svg = tradeoff(group, by_key["latency/step_ms"], column)
            found += [Plot(f"Time of a step against {column.header}, {numbers(group)}", svg)] if svg else []
    svg = step_costs(runs)
    return [*found, Plot(STEP_TITLE, svg)] if svg else found


def _template() -> Any:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("template.html.j2")
