"""What a run cost, from its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from otil_exp.metrics.summary import entry
from otil_exp.run_folder.steps import StepRow, Steps
from otil_exp.run_folder.timing import Attempt, machines, timed_rows

TIMED_KINDS = ("warmup", "steady", "refresh")
"""Kinds of step with a figure of their own; the final one comes once a picture."""


def cost_metrics(rows: Sequence[StepRow], warm: bool, attempts: Sequence[Attempt] = ()) -> dict[str, Any]:
    """Time and traffic of a step after warm-up (steady, refresh and final ones), of all steps, and times by kind.

    Means, so that a refresh counts as often as it happens; times, which are rank 0's, have their median and their 5th
    and 95th percentile beside them, bytes are those of all ranks. warm: whether untimed images ran before. attempts:
    those of the run, for which see `timed_rows`; times say `machines` where several made its pictures.
    """
    steps, several = Steps.of(rows), machines(attempts)
    timed = timed_rows(steps, warm, attempts)
    mark = {"machines": several} if several > 1 else {}
    after, timed_after = (some.where(~some.of_kind("warmup")) for some in (steps, timed))
    values: dict[str, np.ndarray] = {
        "latency/step_ms": timed_after.column("ms"),
        "latency/step_ms_all": timed.column("ms"),
        **{f"latency/{kind}_ms": timed.column("ms")[timed.of_kind(kind)] for kind in TIMED_KINDS},
        "traffic/bytes_sent_per_step": after.column("bytes_sent"),
        "traffic/bytes_sent_per_step_all": steps.column("bytes_sent"),
        "traffic/collectives_per_step": after.column("collectives"),
        "traffic/collectives_per_step_all": steps.column("collectives"),
    }
    found = {key: _mean(key, some) for key, some in values.items()}
    for key in values:
        if key.startswith("latency/") and len(values[key]):
            p5, median, p95 = (float(value) for value in np.percentile(values[key], (5, 50, 95)))
            found[key] |= mark | {"median": median, "p5": p5, "p95": p95}
    return found


def memory_metrics(record: Mapping[str, Any]) -> dict[str, Any]:
    """Most GPU memory that a rank's tensors took while pictures were made, from record.json: of the rank that took the
    most (`by_rank`; runs of before have rank 0's alone)."""
    key, peak = "memory/peak_mib", record.get("peak_memory_mib")
    if peak is None:
        return {key: entry(key, None, 0, missing="counted on GPUs only")}
    by_rank = record.get("peak_memory_mib_by_rank", [peak])
    return {key: entry(key, peak, len(by_rank), by_rank=by_rank)}


def stage_metrics(record: Mapping[str, Any]) -> dict[str, Any]:
    """Stages of a UNet that was cut by depth, and how old the oldest of what a prediction rests on is, from
    record.json; nothing for other methods."""
    stages = record.get("stages")
    if not stages:
        return {}
    shares, ages = stages["shares"], stages["ages"]
    return {
        "stages/count": entry("stages/count", len(shares), len(ages), shares=shares, ends=stages["ends"]),
        "stages/oldest": entry("stages/oldest", max(ages), len(ages), ages=ages),
    }


def peak_memory_mib(device: torch.device) -> float | None:
    """Of this rank's tensors so far; None on a CPU."""
    return round(torch.cuda.max_memory_allocated(device) / 2**20, 1) if device.type == "cuda" else None


def _mean(key: str, values: np.ndarray) -> dict[str, Any]:
    """Mean with its count; no value where there was nothing, such as steps after a warm-up that fills the run."""
    if not len(values):
        return entry(key, None, 0, missing="no such step in steps.csv, such as one after the warm-up")
    return entry(key, float(values.mean()), len(values))
