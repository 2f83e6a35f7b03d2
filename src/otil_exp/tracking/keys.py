"""The names of everything that is logged: one table, in the code, in docs/tracking.md and at W&B."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Key:
    """One name, or a family: <kind> is a kind of step, <prompt> the index of a prompt from 00."""

    name: str
    where: str
    """history, summary or both."""
    unit: str
    meaning: str

    def matches(self, name: str) -> bool:
        """Whether a logged name is this key or of its family."""
        holes = {"<kind>": "(warmup|steady|refresh|final)", "<prompt>": r"\d{2,}"}
        pattern = re.escape(self.name)
        for hole, filling in holes.items():
            pattern = pattern.replace(re.escape(hole), filling)
        return re.fullmatch(pattern, name) is not None


COUNT = "step/count"
"""The x axis of step/*."""

KEYS = (
    Key(COUNT, "history", "1", "position of the prompt x steps a picture + step; the x axis of `step/*`"),
    Key("step/prompt", "history", "1", "index of the prompt, as in steps.csv"),
    Key("step/repeat", "history", "1", "repetition of mode=benchmark, as in steps.csv"),
    Key("step/index", "history", "1", "steps.csv's step"),
    Key("step/kind", "history", "", "steps.csv's kind"),
    Key("step/ms", "history", "ms", "steps.csv's ms of rank 0"),
    Key("step/ms_<kind>", "history", "ms", "the same, one series a kind"),
    Key("step/ms_slowest", "history", "ms", "the slowest rank's ms"),
    Key("step/bytes_sent", "history", "B", "steps.csv's bytes_sent, mean over the ranks"),
    Key("step/collectives", "history", "1", "steps.csv's collectives, mean over the ranks"),
    Key("picture/<prompt>", "history", "", "the picture"),
    Key("marked/<prompt>", "history", "", "the same with dashes where slices meet, for methods that cut"),
    Key("difference/<prompt>", "history", "", "4 x absolute difference to the reference picture, where there is one"),
    Key(
        "seam_profile/rows/<prompt>_table",
        "history",
        "levels",
        "chart: step of every row, of the picture, the reference and the difference",
    ),
    Key(
        "seam_profile/columns/<prompt>_table",
        "history",
        "levels",
        "the same over columns, for methods that cut columns",
    ),
    Key("histogram/ms_<kind>", "both", "ms", "rank 0's steps of a kind, all pictures"),
    Key("per_prompt", "both", "", "table: prompt, text, seed, every score of a single picture, and the picture"),
    Key("<metric>/<spread>", "summary", "", "standard_error of scores; median, p5 and p95 of times"),
    Key("failure/error", "summary", "", "what failed; the traceback is in record.json"),
)
"""What is logged besides the metrics: every key of metrics.json is logged (both) as its value, under its own name."""


def table() -> str:
    """The keys as Markdown, for docs/tracking.md."""
    lines = ["| key | where | unit | what it is |", "| --- | --- | --- | --- |"]
    lines += [f"| `{key.name}` | {key.where} | {key.unit or '-'} | {key.meaning} |" for key in KEYS]
    lines.append("| every key of `metrics.json` | both | its `unit` | its `value`; null where missing (summary) |")
    return "\n".join(lines)
