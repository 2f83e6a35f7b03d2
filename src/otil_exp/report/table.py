"""The summary table of a grid, from run folders alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from otil_exp.report.fitting import FirstThatFits
from otil_exp.report.variants import variants
from otil_exp.run_folder.folder import RunFolder


def summary(folders: Sequence[RunFolder]) -> RenderableType:
    """Table of method, cost and quality, then where the pictures are, then what failed and why."""
    notes = [*_paths(folders), *_warnings(folders), *_failures(folders)]
    return Group(FirstThatFits(_table(folders)), *notes)


def _table(folders: Sequence[RunFolder]) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,  # narrow enough for 80 columns
        padding=0,
        caption="a step after warm-up: ms of rank 0, MB a rank sends; to the reference: PSNR, grey levels at the seam",
    )
    for header, align in (("method", "left"), ("ranks", "right"), ("k", "right"), ("refresh", "right")):
        table.add_column(header, justify=align)  # type: ignore[arg-type]
    timed = any("latency/image_s" in folder.metrics for folder in folders)
    for header in ("ms/step", *["s/image"] * timed, "MB/step", "PSNR dB", "seam", "status"):
        table.add_column(header, justify="right")
    for folder, variant in zip(folders, variants(folders), strict=True):
        table.add_row(*map(Text, _row(folder, variant, timed)))  # as typed: no markup
    return table


def _row(folder: RunFolder, variant: str, timed: bool) -> list[str]:
    record, metrics = folder.known, folder.metrics
    effective, topology = record.get("effective", {}), record.get("topology", {})
    split = " split" if topology.get("split_batch") else ""
    traffic = _number(metrics, "traffic/bytes_sent_per_step", 1e-6, ".3f")
    psnr = "-" if record.get("method") == "reference" else _number(metrics, "ref/psnr", 1, ".2f")
    return [
        f"{_method(folder)} {variant}".strip(),
        f"{topology.get('world_size', '?')}{split}",
        str(effective.get("k") or "-"),
        str(effective.get("refresh_period") or "-"),
        _number(metrics, "latency/step_ms", 1, ".1f"),
        *[_number(metrics, "latency/image_s", 1, ".3f")] * timed,
        traffic,
        psnr,
        _number(metrics, "ref/step_levels", 1, ".2f"),
        str(record.get("status", "missing")),
    ]


def _number(metrics: dict[str, Any], key: str, scale: float, form: str) -> str:
    value = metrics.get(key, {}).get("value")
    return "-" if value is None else format(value * scale, form)


def _paths(folders: Sequence[RunFolder]) -> list[Text]:
    return [Text(f"{_method(f)}: {f.images}", overflow="fold") for f in folders if f.images.exists()]


def _warnings(folders: Sequence[RunFolder]) -> list[Text]:
    lines = {f"ms/step mean nothing here: {why}" for f in folders if (why := f.record.get("times_meaningless"))}
    lines |= {f"PSNR: {why}" for f in folders if (why := f.metrics.get("ref/psnr", {}).get("missing"))}
    return [Text(line, style="yellow") for line in sorted(lines)]


def _failures(folders: Sequence[RunFolder]) -> list[Text]:
    return [
        Text(
            f"{_method(f)} failed on rank {f.record.get('failed_rank', '?')}: {f.record.get('error', '?')} ({f.path})",
            style="red",
        )
        for f in folders
        if f.record.get("status") == "failed"
    ]


def _method(folder: RunFolder) -> str:
    """A rank that fails before its record is begun leaves no method there."""
    return str(folder.known.get("method", "?"))
