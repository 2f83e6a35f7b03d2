"""The figures that are shown of a run, wherever they are: the columns of the page, of papers and of the console."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from otil_exp.metrics.registry import METRICS, lookup
from otil_exp.report.collect import Run
from otil_exp.report.comparable import is_time


@dataclass(frozen=True, kw_only=True)
class Column:
    """One metric of metrics.json as a column."""

    key: str
    header: str
    better: int = 0
    """-1: less is better, 1: more is better, 0: neither."""
    scale: float = 1
    form: str = ".3g"
    delta: str = ""
    """How a run is set against the reference run: speedup, difference, or natural (against the reference picture at the
    same rows, which metrics.json has beside); empty where the metric is a distance to the reference already."""
    core: bool = False
    """Shown from the start."""
    enough: int | None = None
    """Pictures below which the value is mostly bias or noise."""
    console: bool = False
    """Part of the table that ends a grid."""

    @property
    def is_time(self) -> bool:
        return is_time(self.key)

    @property
    def is_score(self) -> bool:
        """Judged from pictures, so that its sample count says how far to trust it."""
        return not self.is_time and not self.key.startswith(("traffic/", "stages/"))

    @property
    def arrow(self) -> str:
        return {-1: "↓", 0: "", 1: "↑"}[self.better]

    @property
    def direction(self) -> str:
        return {-1: "less is better", 0: "", 1: "more is better"}[self.better]

    def text(self, value: float) -> str:
        """The value in the header's unit, with the column's decimals."""
        return format(value * self.scale, self.form)

    def signed(self, value: float) -> str:
        """A difference as `text` has it, with its sign."""
        return format(value * self.scale, f"+{self.form}")


def column_of(key: str) -> Column:
    """The column of a metric, as its entry has it."""
    metric = lookup(key)
    return Column(
        key=key,
        header=metric.title,
        better=metric.better,
        scale=metric.scale,
        form=metric.form,
        delta=metric.delta,
        enough=metric.enough,
        core=metric.core or key == PEAK_MEMORY,
        console=key in CONSOLE,
    )


PEAK_MEMORY = "memory/peak_mib"

ALWAYS = ("latency/step_ms", "traffic/bytes_sent_per_step", "ref/psnr")
CONSOLE = (*ALWAYS, "latency/image_s", "stages/count", "stages/oldest", "ref/step_levels")
"""What the table that ends a grid has room for; those of ALWAYS whether a run has them or not."""

CORE = tuple(column for metric in METRICS if (column := column_of(metric.key)).core)

STEP_MS, SENT, PSNR = map(column_of, ("latency/step_ms", "traffic/bytes_sent_per_step", "ref/psnr"))

PERCEPTUAL = ("ref/lpips_alex", "ref/effnet_lite0_5stage")
"""Perceptual distances to the reference, the preferred one first."""

BY_KIND = ("latency/warmup_ms", "latency/steady_ms", "latency/refresh_ms")
"""Times of a step by its kind: for tables of runs that were made to be timed."""

SHOWN_AS_CORE = {column.key for column in CORE}


def columns(runs: Sequence[Run]) -> list[Column]:
    """Those that any of the runs has: the usual ones in their order, then all others."""
    keys = list(dict.fromkeys(key for run in runs for key in run.metrics if run.value(key) is not None))
    others = [key for key in keys if key not in SHOWN_AS_CORE and not key.startswith("reference/")]
    return [column for column in CORE if column.key in keys] + [column_of(key) for key in others]
