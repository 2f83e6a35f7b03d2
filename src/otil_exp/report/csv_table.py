"""Every figure of every run as CSV, unrounded and in the units of metrics.json, for other programs."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO

from otil_exp.report.collect import Run
from otil_exp.report.columns import columns
from otil_exp.report.walltime import phase_names, seconds_of

PARTS = ("standard_error", "n", "model", "ground_truth")
"""What stands beside a value, in columns of their own where any run has it: ref/psnr.n"""


def csv_table(runs: Sequence[Run]) -> str:
    """One row a run, one column a figure, and one a phase of the run, in seconds; empty where a run has none."""
    keys = [column.key for column in columns(runs)]
    parts = [(key, part) for key in keys for part in PARTS if any(run.entry(key).get(part) is not None for run in runs)]
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
        row |= {f"{key}.{part}": run.entry(key).get(part) for key, part in parts}
        rows.append(row | {f"phases/{name}": seconds_of(run).get(name) for name in phases})
    buffer = StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()
