"""What the marks of a table mean, in sentences for under it."""

from __future__ import annotations

from collections.abc import Sequence

from otil_exp.report.collect import Run
from otil_exp.report.columns import Column
from otil_exp.report.figures import figures
from otil_exp.report.paired import NEEDED_IN_WORDS

TIMES = "ms/step and MB/step: means over the steps after warm-up, time of rank 0, bytes that a rank sends."

TIED = f"≈: over the same prompts not told apart from the best (5 % level, {NEEDED_IN_WORDS})."

MEMORY = "Peak MiB: most GPU memory that a rank's tensors took, of the rank that took most."

STAGES = (
    "Stages: parts of a UNet cut by depth, one a rank. Oldest: most steps between a step and the latent that a part of "
    "its prediction was made of."
)

TO_REFERENCE = "to the pictures of the reference run on one GPU with the same prompts and seeds."


def legend(runs: Sequence[Run], shown: Sequence[Column]) -> list[str]:
    """One sentence for every mark that these runs and columns have."""
    paired = [column.header for column in shown if column.key.startswith("ref/") or column.key.endswith("/orig")]
    every = [figure for column in shown for figure in figures(runs, column)]
    marks = [
        ("↑ more is better, ↓ less is better.", any(column.better for column in shown)),
        (
            "±: standard error of the mean over the n pictures; for two methods see their paired difference.",
            any(figure.error for figure in every),
        ),
        (
            "Bold: best of the runs that can be compared, the reference left out.",
            any(figure.best for figure in every),
        ),
        (TIED, any(figure.tied for figure in every)),
        ("2.00x: times faster than the reference.", any(figure.delta.endswith("x") for figure in every)),
        (
            "In brackets: a time that means nothing, or nothing beside the reference's.",
            any(figure.doubtful for figure in every),
        ),
        (TIMES, any(column.is_time or column.key.startswith("traffic/") for column in shown)),
        (MEMORY, any(column.key.startswith("memory/") for column in shown)),
        (STAGES, any(column.key.startswith("stages/") for column in shown)),
        (f"{'; '.join(paired)}: {TO_REFERENCE}", bool(paired)),
    ]
    return [sentence for sentence, there in marks if there]
