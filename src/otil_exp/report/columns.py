"""The figures that are shown of a run, wherever they are: the columns of the page, of papers and of the console."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    form: str = ".4g"
    delta: str = ""
    """How a run is set against the reference run: speedup, difference, or natural (against the reference picture at the
    same rows, which metrics.json has beside); empty where the metric is a distance to the reference already."""
    core: bool = False
    """Shown from the start."""
    console: bool = False
    """Part of the table that ends a grid."""

    @property
    def is_time(self) -> bool:
        return is_time(self.key)

    @property
    def is_score(self) -> bool:
        """Judged from pictures, so that its sample count says how far to trust it."""
        return not self.is_time and not self.key.startswith("traffic/")

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


def _core(key: str, header: str, better: int, form: str, **more: object) -> Column:
    return Column(key=key, header=header, better=better, form=form, core=True, **more)  # type: ignore[arg-type]


STEP_MS = _core("latency/step_ms", "ms/step", -1, ".1f", delta="speedup", console=True)
SENT = _core("traffic/bytes_sent_per_step", "MB/step", -1, ".3f", scale=1e-6, console=True)
PSNR = _core("ref/psnr", "PSNR dB", 1, ".2f", console=True)

CORE = (
    STEP_MS,
    _core("latency/image_s", "s/image", -1, ".2f", delta="speedup", console=True),
    _core("memory/peak_mib", "peak MiB", -1, ".0f"),
    SENT,
    _core("traffic/collectives_per_step", "collectives per step", -1, ".1f"),
    PSNR,
    _core("ref/ssim", "SSIM", 1, ".4f"),
    _core("ref/lpips_alex", "LPIPS", -1, ".4f"),
    _core("ref/effnet_lite0_5stage", "EfficientNet distance", -1, ".4f"),
    _core("ref/step_levels", "seam, levels", -1, ".2f", console=True),
    _core("fid/orig", "FID w/ orig.", -1, ".2f"),
    _core("fid/gt", "FID w/ GT", -1, ".2f", delta="difference"),
    _core("text/clip_score", "CLIP score", 1, ".2f", delta="difference"),
)

PERCEPTUAL = ("ref/lpips_alex", "ref/effnet_lite0_5stage")
"""Perceptual distances to the reference, the preferred one first."""

SHOWN_AS_CORE = {column.key for column in CORE}


def columns(runs: Sequence[Run]) -> list[Column]:
    """Those that any of the runs has: the usual ones in their order, then all others."""
    keys = list(dict.fromkeys(key for run in runs for key in run.metrics if run.value(key) is not None))
    others = [key for key in keys if key not in SHOWN_AS_CORE and not key.startswith("reference/")]
    return [column for column in CORE if column.key in keys] + [_other(key) for key in others]


def _other(key: str) -> Column:
    family = key.split("/")[0].split("_")[0]
    better = {"fid": -1, "kid": -1, "frechet": -1, "kernel": -1, "text": 1}.get(family, 0)
    delta = "natural" if family == "seam" else "difference" if key.endswith("/gt") or family == "text" else ""
    return Column(key=key, header=key, better=better, delta=delta)
