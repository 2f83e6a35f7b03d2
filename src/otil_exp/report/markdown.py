"""A result page in Markdown: hardware, versions, date, table, and what the table does not say."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from otil_exp.report.collect import Run
from otil_exp.report.columns import Cell, cells, columns
from otil_exp.report.comparable import commit, warnings
from otil_exp.report.page import shared_facts


def result_page(runs: Sequence[Run]) -> str:
    """The page of these runs; text of theirs is escaped where Markdown or HTML would read it."""
    commits = sorted({commit(run) for run in runs if run.record})
    ended = sorted(str(run.record["ended"])[:10] for run in runs if run.record.get("ended"))
    facts = [*shared_facts(runs), *([("commit", ", ".join(commits))] if commits else [])]
    name = ", ".join(dict.fromkeys(str(run.config.get("name", "runs")) for run in runs))
    lines = [f"# {escape(name)}", "", *(f"- {fact}: {escape(value)}" for fact, value in facts)]
    lines += [f"- measured: {ended[-1] if ended else 'not finished'}; page of {datetime.now(UTC):%Y-%m-%d}", ""]
    lines += _table(runs)
    failed = [f"- {run.number} {escape(run.label)}: {escape(run.reason)}" for run in runs if run.reason]
    notes = [f"- {escape(warning)}" for warning in warnings(runs)]
    lines += ["", "## Failed", "", *failed] if failed else []
    lines += ["", "## Before you compare", "", *notes] if notes else []
    return "\n".join(lines)


def escape(text: str) -> str:
    """One line that Markdown shows as it is, also in a table and where HTML is let through."""
    for character in "\\`*_[]|#":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").split())


def _table(runs: Sequence[Run]) -> list[str]:
    shown = [column for column in columns(runs) if column.core]
    by_column = [cells(runs, column) for column in shown]
    head = ["#", "run", "status", *(column.header for column in shown)]
    rows = [
        [str(run.number), escape(run.label), run.status, *(_cell(column[i]) for column in by_column)]
        for i, run in enumerate(runs)
    ]
    rule = ["--:", "---", "---", *("--:" for _ in shown)]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *rows)]


def _cell(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.best else f"({cell.text})" if cell.doubtful else cell.text
    return f"{text} {cell.delta}".strip() if not cell.doubtful else text
