"""What a run cost, from its steps."""

from __future__ import annotations

from statistics import fmean, median
from typing import Any

from otil_exp.metrics.summary import entry
from otil_exp.run.folder import StepRow


def cost_metrics(rows: list[StepRow]) -> dict[str, Any]:
    """Time and traffic of a step after warm-up, and of all steps; rank 0's time, the ranks' mean of bytes.

    The first picture is left out of times where there are others: it pays for caches and allocations.
    """
    pictures = sorted({(row.prompt, row.repeat) for row in rows})
    timed = [row for row in rows if row.rank == 0 and ((row.prompt, row.repeat) != pictures[0] or len(pictures) == 1)]
    after, timed_after = ([row for row in some if row.kind != "warmup"] for some in (rows, timed))
    return {
        "latency/step_ms": entry(median([row.ms for row in timed_after]), "ms", len(timed_after)),
        "latency/step_ms_all": entry(fmean([row.ms for row in timed]), "ms", len(timed)),
        "traffic/bytes_sent_per_step": entry(fmean([row.bytes_sent for row in after]), "B", len(after)),
        "traffic/bytes_sent_per_step_all": entry(fmean([row.bytes_sent for row in rows]), "B", len(rows)),
        "traffic/collectives_per_step": entry(fmean([row.collectives for row in after]), "1", len(after)),
    }
