"""steps.csv as rows of a W&B history."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from otil_exp.run_folder.steps import StepRow
from otil_exp.tracking.keys import COUNT


def step_entries(rows: Sequence[StepRow], first_count: int) -> list[dict[str, Any]]:
    """One entry a step of one picture, in step order, from the rows of all ranks.

    first_count: step/count of the picture's first step.
    """
    entries = []
    for step in sorted({row.step for row in rows}):
        ranks = sorted((row for row in rows if row.step == step), key=lambda row: row.rank)
        own = ranks[0]
        entries.append(
            {
                COUNT: first_count + step,
                "step/prompt": own.prompt,
                "step/repeat": own.repeat,
                "step/index": step,
                "step/kind": own.kind,
                "step/ms": own.ms,
                f"step/ms_{own.kind}": own.ms,
                "step/ms_slowest": max(row.ms for row in ranks),
                "step/bytes_sent": fmean(row.bytes_sent for row in ranks),
                "step/collectives": fmean(row.collectives for row in ranks),
            }
        )
    return entries


def by_picture(rows: Sequence[StepRow]) -> dict[tuple[int, int], list[StepRow]]:
    """Rows of every (prompt, repeat), in that order."""
    found: dict[tuple[int, int], list[StepRow]] = {}
    for row in sorted(rows, key=lambda row: (row.prompt, row.repeat)):
        found.setdefault((row.prompt, row.repeat), []).append(row)
    return found
