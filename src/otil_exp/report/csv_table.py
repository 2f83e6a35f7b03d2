"""Every figure of every run as CSV, unrounded and in the units of metrics.json, for other programs."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO
from typing import Any

from otil_exp.report.collect import Run
from otil_exp.report.columns import columns
from otil_exp.report.walltime import phase_names, seconds_of

PARTS = ("standard_error", "median", "p5", "p95", "n", "n_reference", "identical", "truncated", "machines", "model")
"""What stands beside a value, in columns of their own where any run has it: ref/psnr.n"""

TRUTH = ("path", "count", "digest")
"""Of the ground truth beside a value: fid/gt.ground_truth.path"""

ALL_PARTS = (*PARTS, *(f"ground_truth.{part}" for part in TRUTH))


def csv_table(runs: Sequence[Run]) -> str:
    """One row a run, one column a figure, and one a phase of the run, in seconds; empty where a run has none."""
    shown = [column.key for column in columns(runs)]
    keys = list(dict.fromkeys([*shown, *(key for run in runs for key in run.metrics if run.value(key) is not None)]))
    beside = {run.number: {key: _beside(run, key) for key in keys} for run in runs}
    parts = [(key, part) for key in keys for part in ALL_PARTS if any(part in beside[run.number][key] for run in runs)]
    phases, rows = phase_names(runs), []
    for run in runs:
        effective = run.record.get("effective", {})
        row = {
            "run": run.number,
            "label": run.label,
            "method": run.method,
            "topology": run.topology,
            "k": effective.get("k"),
            "refresh": effective.get("refresh_period"),
            "status": run.status,
            "times_meaningless": run.record.get("times_meaningless"),
            "signature": run.record.get("signature", run.folder.path.name),
        }
        row |= {key: run.value(key) for key in keys}
        row |= {f"{key}.{part}": beside[run.number][key].get(part) for key, part in parts}
        rows.append(row | {f"phases/{name}": seconds_of(run).get(name) for name in phases})
    buffer = StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def _beside(run: Run, key: str) -> dict[str, Any]:
    """What is known beside a run's value, by the name of its part."""
    entry = run.entry(key)
    truth = {f"ground_truth.{part}": (entry.get("ground_truth") or {}).get(part) for part in TRUTH}
    return {part: value for part, value in (entry | truth).items() if part in ALL_PARTS and value is not None}
