"""Plots as SVG to stand in a page: matplotlib, since it draws them once, without a script that a reader must load.

Colours that must follow the page's light or dark scheme are drawn as placeholders and become CSS variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from itertools import cycle
from statistics import fmean
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from otil_exp.report.collect import Run
from otil_exp.report.columns import Column, time_doubt
from otil_exp.report.pareto import front
from otil_exp.run_folder.steps import StepRow
from otil_exp.run_folder.timing import timed_rows

INK, MUTED, RULE, PAPER = "#010203", "#6a6b6c", "#d0d1d2", "#fdfcfb"
VARIABLES = {INK: "var(--ink)", MUTED: "var(--muted)", RULE: "var(--rule)", PAPER: "var(--paper)"}

PALETTE = ("#2f7fd0", "#e08214", "#2a9d62", "#cf4a4a", "#8c6bc8", "#a0714f", "#d66bb0", "#8a8f1f", "#1fa3b5", "#7a7f87")
"""One colour a method, readable on light and dark."""

KINDS = {"warmup": "#8a8f98", "steady": "#2f7fd0", "refresh": "#e08214", "final": "#2a9d62"}
"""Kinds of a step in the order of a picture, with their colours."""

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


def tradeoff(runs: Sequence[Run], time: Column, quality: Column) -> str | None:
    """Time against quality, one point a finished run, with the front drawn; None with fewer than two points.

    runs: comparable ones. The reference has no loss: its time is a line, where the front ends. Hollow: the time
    means nothing.
    """
    drawn = [run for run in runs if not run.is_reference and _has(run, time) and _has(run, quality)]
    if len(drawn) < 2:
        return None
    colours = dict(zip(dict.fromkeys(run.method for run in drawn), cycle(PALETTE), strict=False))
    points = [(_shown(run, time), _shown(run, quality)) for run in drawn]
    references = [_shown(run, time) for run in runs if run.is_reference and _has(run, time)]
    with _figure(6.2, 4.2) as (figure, holder):
        axes = figure.subplots()
        for run, (x, y) in zip(drawn, points, strict=True):
            face = PAPER if time_doubt(run) else colours[run.method]
            axes.plot(x, y, "o", ms=9, mfc=face, mec=colours[run.method], mew=2, label=run.method, zorder=3)
            offset = (6, 6) if sorted(points).index((x, y)) % 2 else (6, -13)  # neighbours' numbers stay apart
            axes.annotate(str(run.number), (x, y), offset, textcoords="offset points", fontsize=9)
        for x in references:
            axes.axvline(x, color=MUTED, ls=":", lw=1.4, label="reference (no loss)")
        _draw_front(axes, points, references, quality.better)
        if 0 < 50 * min(y for _, y in points) < max(y for _, y in points):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.margins(0.08, 0.1)
        axes.set_xlabel(f"{time.header}, less is better")
        axes.set_ylabel(f"{quality.header}, {'more' if quality.better > 0 else 'less'} is better")
        _legend(figure, axes)
    return holder[0]


def _draw_front(axes: Axes, points: Sequence[tuple[float, float]], references: Sequence[float], better: int) -> None:
    """Steps through the runs on the front, up to the time of the fastest reference, which beats whatever is slower."""
    end = min(references, default=None)
    kept = [(x, y) for x, y in points if end is None or x < end]
    if kept:
        steps = [kept[i] for i in front([(x, -better * y) for x, y in kept])]
        steps += [(end, steps[-1][1])] if end is not None else []
        axes.step([x for x, _ in steps], [y for _, y in steps], where="post", color=MUTED, lw=1.4, zorder=1)


def step_costs(runs: Sequence[Run]) -> str | None:
    """Step time (rank 0) and bytes a step (mean of the ranks) by kind of step, one line a run; None without steps."""
    steps = {run.number: (run, rows) for run in runs if (rows := run.folder.read_steps())}
    if not steps:
        return None
    with _figure(12.4, 1.3 + 0.46 * len(steps)) as (figure, holder):
        times, traffic = figure.subplots(1, 2, sharey=True)
        for position, (run, rows) in enumerate(steps.values()):
            _draw_times(times, position, _timed(run, rows))
            _draw_traffic(traffic, position, rows)
        times.set_yticks(range(len(steps)), [f"{run.number}  {_short(run.label)}" for run, _ in steps.values()])
        times.tick_params(axis="y", labelcolor=INK, length=0)
        times.invert_yaxis()
        times.set_xlim(left=0)
        times.set_xlabel("ms/step")
        traffic.set_xscale("symlog", linthresh=1e3, linscale=0.5)  # zero is a value; above 1 kB it is logarithmic
        traffic.set_xticks([0, *(10**power for power in range(3, 11))])
        most = max(row.bytes_sent for _, rows in steps.values() for row in rows)
        traffic.set_xlim(-100, max(2 * most, 10_000))
        traffic.set_xlabel("sent per step")
        traffic.xaxis.set_major_formatter(lambda value, _: _bytes(value))
        traffic.minorticks_off()
        handles = [Line2D([], [], color=colour, marker="s", ls="", label=kind) for kind, colour in KINDS.items()]
        figure.legend(handles=handles, loc="outside upper center", ncols=len(KINDS))
    return holder[0]


def _draw_times(axes: Axes, position: int, rows: Sequence[StepRow]) -> None:
    present = [kind for kind in KINDS if any(row.kind == kind for row in rows)]
    for place, kind in enumerate(present):
        box = axes.boxplot(
            [row.ms for row in rows if row.kind == kind],
            positions=[position + (place - (len(present) - 1) / 2) * 0.2],
            widths=0.15,
            orientation="horizontal",
            whis=(5, 95),
            showfliers=False,
            patch_artist=True,
            manage_ticks=False,
        )
        for part in (*box["boxes"], *box["whiskers"], *box["caps"]):
            part.set_color(KINDS[kind])
        box["medians"][0].set_color(INK)


def _draw_traffic(axes: Axes, position: int, rows: Sequence[StepRow]) -> None:
    present = [kind for kind in KINDS if any(row.kind == kind for row in rows)]
    for place, kind in enumerate(present):
        mean = fmean(row.bytes_sent for row in rows if row.kind == kind)
        height = position + (place - (len(present) - 1) / 2) * 0.2
        axes.plot([0, mean], [height, height], color=KINDS[kind], lw=1.5)
        axes.plot(mean, height, "o", ms=5, color=KINDS[kind])


def _timed(run: Run, rows: Sequence[StepRow]) -> list[StepRow]:
    """Rank 0's steps as metrics.json counts them."""
    return timed_rows(rows, run.config.get("mode") == "benchmark", run.record.get("attempts", ()))


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
