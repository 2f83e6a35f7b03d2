"""Plots as SVG to stand in a page: matplotlib, since it draws them once, without a script that a reader must load.

Colours that must follow the page's light or dark scheme are drawn as placeholders and become CSS variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle

from otil_exp.method_style import COLOURS, NEUTRAL, style_of
from otil_exp.report.best import takes_part
from otil_exp.report.collect import Run
from otil_exp.report.columns import Column
from otil_exp.report.comparable import basis, doubt
from otil_exp.report.pareto import front
from otil_exp.run_folder.steps import Steps
from otil_exp.run_folder.timing import timed_rows

INK, MUTED, RULE, PAPER = "#010203", "#6a6b6c", "#d0d1d2", "#fdfcfb"
VARIABLES = {INK: "var(--ink)", MUTED: "var(--muted)", RULE: "var(--rule)", PAPER: "var(--paper)"}

KINDS = {
    "warmup": (NEUTRAL, "o"),
    "steady": (COLOURS[0], "s"),
    "refresh": (COLOURS[1], "^"),
    "final": (COLOURS[2], "D"),
}
"""Kinds of a step in the order of a picture, with colour and marker."""

MOST_NUMBERS = 25
"""Points of a plot that all have their numbers; of more, those on a front have."""

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "otil_exp",
    "text.parse_math": False,  # a $ in a name is a $
    "font.family": ["sans-serif"],
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 11,
    "axes.edgecolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
}


def tradeoff(runs: Sequence[Run], cost: Column, quality: Column) -> str | None:
    """Cost against quality, one point a finished run, with a front for every set of runs whose costs can be compared.

    runs: those whose quality can be compared, and their reference, which has no loss: its cost is a line, where the
    front ends. Hollow: the time means nothing, or nothing beside the reference's. None with fewer than two points.
    """
    drawn = [run for run in runs if not run.is_reference and _has(run, cost) and _has(run, quality)]
    if len(drawn) < 2:
        return None
    points = {run.number: (_shown(run, cost), _shown(run, quality)) for run in drawn}
    references = [run for run in runs if run.is_reference and _has(run, cost) and cost.is_time]
    with _figure(6.2, 4.2) as (figure, holder):
        axes = figure.subplots()
        on_front = _draw_fronts(axes, drawn, references, cost, quality)
        for place, run in enumerate(sorted(drawn, key=lambda run: points[run.number])):
            style, (x, y) = style_of(run.method), points[run.number]
            face = PAPER if doubt(run, runs, cost.key) else style.colour
            axes.plot(x, y, style.marker, ms=9, mfc=face, mec=style.colour, mew=2, label=run.method, zorder=3)
            if len(drawn) > MOST_NUMBERS and run.number not in on_front:
                continue
            offset = (6, -13) if place % 2 == 0 else (6, 6)  # neighbours' numbers stay apart
            axes.annotate(str(run.number), (x, y), offset, textcoords="offset points", fontsize=9)
        for run in references:
            axes.axvline(_shown(run, cost), color=MUTED, ls=":", lw=1.4, label="reference (no loss)")
        if 0 < 50 * min(y for _, y in points.values()) < max(y for _, y in points.values()):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.margins(0.08, 0.1)
        axes.set_xlabel(f"{cost.header}, {cost.direction}")
        axes.set_ylabel(f"{quality.header}, {quality.direction}")
        _legend(figure, axes)
    return holder[0]


def _draw_fronts(
    axes: Axes, drawn: Sequence[Run], references: Sequence[Run], cost: Column, quality: Column
) -> set[int]:
    """Steps through the runs on each front, up to the cost of the fastest reference, which beats whatever is slower.

    Returns their numbers.
    """
    on_front: set[int] = set()
    alike: dict[tuple[str, ...], list[Run]] = {}
    for run in drawn:
        if takes_part(run, cost):
            alike.setdefault(basis(run, cost.key), []).append(run)
    for key, its in alike.items():
        ends = [_shown(run, cost) for run in references if basis(run, cost.key) == key]
        end = min(ends, default=None)
        kept = [run for run in its if end is None or _shown(run, cost) < end]
        chosen = front([(_shown(run, cost), -quality.better * _shown(run, quality)) for run in kept])
        on_front |= {kept[i].number for i in chosen}
        if kept:
            steps = [(_shown(kept[i], cost), _shown(kept[i], quality)) for i in chosen]
            steps += [(end, steps[-1][1])] if end is not None else []
            axes.step([x for x, _ in steps], [y for _, y in steps], where="post", color=MUTED, lw=1.4, zorder=1)
    return on_front


def step_costs(runs: Sequence[Run]) -> str | None:
    """Step time (rank 0) and bytes a step (mean of the ranks) by kind of step, one line a run; None without steps."""
    steps = [(run, costs) for run in runs if (costs := _costs_of(run)) is not None]
    if not steps:
        return None
    with _figure(12.4, 1.3 + 0.46 * len(steps)) as (figure, holder):
        times, traffic = figure.subplots(1, 2, sharey=True)
        for position, (_, costs) in enumerate(steps):
            _draw_times(times, position, costs.ms)
            _draw_traffic(traffic, position, costs.sent)
        times.set_yticks(range(len(steps)), [f"{run.number}  {_short(run.label)}" for run, _ in steps])
        times.tick_params(axis="y", labelcolor=INK, length=0)
        times.set_ylim(len(steps) - 0.4, -0.6)  # downwards, without matplotlib's margin, which grows with the runs
        times.set_xlim(left=0)
        times.set_xlabel("ms/step")
        times.xaxis.set_major_formatter(lambda value, _: f"{value:g} ms")
        traffic.set_xscale("symlog", linthresh=1e3, linscale=0.5)  # zero is a value; above 1 kB it is logarithmic
        traffic.set_xticks([0, *(10**power for power in range(3, 11))])
        most = max(costs.most_sent for _, costs in steps)
        traffic.set_xlim(-100, max(2 * most, 10_000))
        traffic.set_xlabel("sent per step")
        traffic.xaxis.set_major_formatter(lambda value, _: _bytes(value))
        traffic.minorticks_off()
        for axes in (times, traffic):
            axes.tick_params(axis="x", top=len(steps) > 12, labeltop=len(steps) > 12)  # far from the axis below
            axes.spines["top"].set_visible(len(steps) > 12)
        handles = [Line2D([], [], color=c, marker=marker, ls="", label=kind) for kind, (c, marker) in KINDS.items()]
        figure.legend(handles=handles, loc="outside upper center", ncols=len(KINDS))
    return holder[0]


@dataclass(frozen=True)
class _StepCosts:
    """What is drawn of a run's steps, by kind: its rows, of which a large run has millions, are not kept."""

    ms: dict[str, np.ndarray]
    """Of rank 0, as metrics.json counts them."""

    sent: dict[str, float]
    """Mean bytes of a rank."""

    most_sent: int


def _costs_of(run: Run) -> _StepCosts | None:
    steps = run.folder.read_steps()
    if not steps:
        return None
    timed, sent = _timed(run, steps), steps.column("bytes_sent")
    times = {kind: timed.column("ms")[timed.of_kind(kind)] for kind in KINDS}
    return _StepCosts(
        ms={kind: ms for kind, ms in times.items() if len(ms)},
        sent={kind: float(sent[mask].mean()) for kind in KINDS if (mask := steps.of_kind(kind)).any()},
        most_sent=int(sent.max()),
    )


def _draw_times(axes: Axes, position: int, ms: Mapping[str, np.ndarray]) -> None:
    for place, kind in enumerate(ms):
        box = axes.boxplot(
            ms[kind],
            positions=[position + (place - (len(ms) - 1) / 2) * 0.2],
            widths=0.15,
            orientation="horizontal",
            whis=(5, 95),
            showfliers=False,
            patch_artist=True,
            manage_ticks=False,
        )
        for part in (*box["boxes"], *box["whiskers"], *box["caps"]):
            part.set_color(KINDS[kind][0])
        box["medians"][0].set(color=INK, marker=KINDS[kind][1], mfc=KINDS[kind][0], mew=0.5, ms=5, markevery=[0])


def _draw_traffic(axes: Axes, position: int, sent: Mapping[str, float]) -> None:
    for place, (kind, mean) in enumerate(sent.items()):
        height = position + (place - (len(sent) - 1) / 2) * 0.2
        colour, marker = KINDS[kind]
        axes.plot([0, mean], [height, height], color=colour, lw=1.5)
        axes.plot(mean, height, marker, ms=5, color=colour)


def swatch(run: Run) -> str:
    """A run's method as a small SVG: its marker in its colour."""
    style = style_of(run.method, is_reference=run.is_reference)
    marker = MarkerStyle(style.marker)
    outline = np.asarray(marker.get_path().transformed(marker.get_transform()).to_polygons()[0])
    points = " ".join(f"{x:.2f},{-y:.2f}" for x, y in outline)
    shape = f'<polygon fill="{style.colour}" points="{points}"/>'
    return f'<svg class="swatch" viewBox="-.6 -.6 1.2 1.2" aria-hidden="true">{shape}</svg>'


def _timed(run: Run, steps: Steps) -> Steps:
    """Rank 0's steps as metrics.json counts them."""
    return timed_rows(steps, run.config.get("mode") == "benchmark", run.record.get("attempts", ()))


def _legend(figure: Figure, axes: Axes) -> None:
    handles, names = axes.get_legend_handles_labels()
    unique = dict(zip(names, handles, strict=True))
    figure.legend(unique.values(), unique.keys(), loc="outside right upper", fontsize=9)


def _has(run: Run, column: Column) -> bool:
    return run.status == "done" and run.value(column.key) is not None


def _shown(run: Run, column: Column) -> float:
    """The value in the unit of the column's header."""
    return (run.value(column.key) or 0) * column.scale


def _short(label: str) -> str:
    return label if len(label) <= 36 else f"{label[:35]}…"


def _bytes(value: float) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= scale:
            return f"{value / scale:g} {unit}"
    return f"{value:g} B"


@contextmanager
def _figure(width: float, height: float) -> Iterator[tuple[Figure, list[str]]]:
    """A figure of so many inches to draw on; its SVG is in the list once the block is left."""
    holder: list[str] = []
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, holder
        buffer = StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    holder.append(_inline(buffer.getvalue()))


def _inline(svg: str) -> str:
    """The bare <svg> element, as wide as its place allows, in the page's colours."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    for placeholder, variable in VARIABLES.items():
        svg = svg.replace(placeholder, variable)
    return svg
