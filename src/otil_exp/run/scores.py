"""What is measured on a finished run: cost from its steps, quality against the reference run beside it."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean, median
from typing import Any

from otil_exp.config import MetricsConfig
from otil_exp.metrics.pairwise import psnr, read_picture
from otil_exp.run.folder import RunFolder, StepRow

PSNR_CAP_DB = 100.0
"""PSNR of identical pictures, which is infinite, enters means as this."""


def score_run(folder: RunFolder, metrics: MetricsConfig) -> None:
    """Write cost and, where the reference is there, quality to metrics.json."""
    scores = cost_metrics(folder.read_steps())
    if metrics.psnr:
        scores |= quality_metrics(folder)
    folder.update_metrics(scores)


def cost_metrics(rows: list[StepRow]) -> dict[str, Any]:
    """Time and traffic of a step after warm-up, and of all steps; rank 0's time, the ranks' mean of bytes.

    The first picture is left out of times where there are others: it pays for caches and allocations.
    """
    pictures = sorted({(row.prompt, row.repeat) for row in rows})
    timed = [row for row in rows if row.rank == 0 and ((row.prompt, row.repeat) != pictures[0] or len(pictures) == 1)]
    after, timed_after = ([row for row in some if row.kind != "warmup"] for some in (rows, timed))
    return {
        "latency/step_ms": _value(median([row.ms for row in timed_after]), "ms", len(timed_after)),
        "latency/step_ms_all": _value(fmean([row.ms for row in timed]), "ms", len(timed)),
        "traffic/bytes_sent_per_step": _value(fmean([row.bytes_sent for row in after]), "B", len(after)),
        "traffic/bytes_sent_per_step_all": _value(fmean([row.bytes_sent for row in rows]), "B", len(rows)),
        "traffic/collectives_per_step": _value(fmean([row.collectives for row in after]), "1", len(after)),
    }


def quality_metrics(folder: RunFolder) -> dict[str, Any]:
    """PSNR to the reference run of the same grid; a sentence on what to run where there is none."""
    if folder.record["method"] == "reference":
        return {}
    reference = find_reference(folder)
    if reference is None:
        return {
            "ref/psnr": _value(None, "dB", 0)
            | {"missing": "no finished reference run beside this one: run the same command with preset=reference"}
        }
    per_image = {}
    for path in sorted(folder.images.glob("*.png")):
        other = reference.images / path.name
        if other.exists():
            per_image[path.stem] = psnr(read_picture(path), read_picture(other))
    capped = [min(value, PSNR_CAP_DB) for value in per_image.values()]
    identical = sum(math.isinf(value) for value in per_image.values())
    return {
        "ref/psnr": _value(fmean(capped) if capped else None, "dB", len(capped))
        | {
            "per_image": dict(zip(per_image, capped, strict=True)),
            "identical": identical,
            "cap": PSNR_CAP_DB,
            "reference": reference.record["signature"],
        }
    }


def find_reference(folder: RunFolder) -> RunFolder | None:
    """A finished reference run beside this one with the same model, size, steps, guidance, scheduler and prompts."""
    own = folder.record
    for path in sorted(Path(folder.path).parent.iterdir()):
        beside = RunFolder(path)
        record = beside.record
        same = record.get("picture_key") == own["picture_key"] and _covers(record, own)
        if same and record.get("method") == "reference" and beside.finished and beside.images.exists():
            return beside
    return None


def _covers(reference: dict[str, Any], own: dict[str, Any]) -> bool:
    return all(prompt in reference["prompts"] for prompt in own["prompts"])


def _value(value: float | None, unit: str, n: int) -> dict[str, Any]:
    """One metric as metrics.json holds it: value, unit, model that scored it, number of samples."""
    return {"value": value, "unit": unit, "model": None, "n": n}
