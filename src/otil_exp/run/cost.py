"""What a run cost, from its steps."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from otil_exp.metrics.summary import entry
from otil_exp.run.attempts import Attempt, machines, timed_attempts
from otil_exp.run_folder.steps import StepRow


def cost_metrics(rows: list[StepRow], warm: bool, attempts: Sequence[Attempt] = ()) -> dict[str, Any]:
    """Time and traffic of a step after warm-up (steady, refresh and final ones), and of all steps.

    Means, so that a refresh counts as often as it happens; rank 0's time, all ranks' bytes. warm: whether untimed
    images ran before. attempts: those of the run, for which see `timed_rows`;
    times say `machines` where several made its pictures.
    """
    timed, several = timed_rows(rows, warm, attempts), machines(attempts)
    mark = {"machines": several} if several > 1 else {}
    after, timed_after = ([row for row in some if row.kind != "warmup"] for some in (rows, timed))
    return {
        "latency/step_ms": _mean([row.ms for row in timed_after], "ms") | mark,
        "latency/step_ms_all": _mean([row.ms for row in timed], "ms") | mark,
        "traffic/bytes_sent_per_step": _mean([row.bytes_sent for row in after], "B"),
        "traffic/bytes_sent_per_step_all": _mean([row.bytes_sent for row in rows], "B"),
        "traffic/collectives_per_step": _mean([row.collectives for row in after], "1"),
    }


def timed_rows(rows: Sequence[StepRow], warm: bool, attempts: Sequence[Attempt] = ()) -> list[StepRow]:
    """Rank 0's rows whose times count: of one machine, and warm.

    Of a run that went on elsewhere, those of the machine that made most pictures. If no untimed images ran before
    (`warm`), each attempt's first picture is left out where there are others, as it pays for caches.
    """
    own = [row for row in rows if row.rank == 0]
    if warm:
        return own
    pictures = sorted({(row.prompt, row.repeat) for row in own})
    parts = [[(index, 0) for index in attempt["prompts"]] for attempt in timed_attempts(attempts)] or [pictures]
    after_first = {picture for part in parts for picture in part[1:]}
    counted = after_first or {picture for part in parts for picture in part}
    return [row for row in own if (row.prompt, row.repeat) in counted]


def _mean(values: Sequence[float], unit: str) -> dict[str, Any]:
    """Mean with its count; no value where there was nothing, such as steps after a warm-up that fills the run."""
    return entry(fmean(values) if values else None, unit, len(values))
