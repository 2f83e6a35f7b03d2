"""What a run cost, from its steps."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from otil_exp.metrics.summary import entry
from otil_exp.run_folder.steps import StepRow


def cost_metrics(rows: list[StepRow], warm: bool) -> dict[str, Any]:
    """Time and traffic of a step after warm-up (steady, refresh and final ones), and of all steps.

    Means, so that a refresh counts as often as it happens; rank 0's time, all ranks' bytes. warm: whether untimed
    images ran before; if not, the first picture is left out of times where there are others, as it pays for caches.
    """
    pictures = sorted({(row.prompt, row.repeat) for row in rows})
    cold = set() if warm or len(pictures) == 1 else {pictures[0]}
    timed = [row for row in rows if row.rank == 0 and (row.prompt, row.repeat) not in cold]
    after, timed_after = ([row for row in some if row.kind != "warmup"] for some in (rows, timed))
    return {
        "latency/step_ms": _mean([row.ms for row in timed_after], "ms"),
        "latency/step_ms_all": _mean([row.ms for row in timed], "ms"),
        "traffic/bytes_sent_per_step": _mean([row.bytes_sent for row in after], "B"),
        "traffic/bytes_sent_per_step_all": _mean([row.bytes_sent for row in rows], "B"),
        "traffic/collectives_per_step": _mean([row.collectives for row in after], "1"),
    }


def _mean(values: Sequence[float], unit: str) -> dict[str, Any]:
    """Mean with its count; no value where there was nothing, such as steps after a warm-up that fills the run."""
    return entry(fmean(values) if values else None, unit, len(values))
