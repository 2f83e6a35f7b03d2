"""A result page in Markdown: command, hardware, versions, date, table with its legend, and what it does not say."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from otil_exp.report.collect import Run
from otil_exp.report.columns import Column, columns
from otil_exp.report.comparable import commit
from otil_exp.report.figures import Figure, figures
from otil_exp.report.header import command, shared_facts
from otil_exp.report.legend import legend
from otil_exp.report.paired import against_best
from otil_exp.report.warn import warnings


def result_page(runs: Sequence[Run]) -> str:
    """The page of these runs; text of theirs is escaped where Markdown or HTML would read it."""
    shown = [column for column in columns(runs) if column.core]
    commits = sorted({commit(run) for run in runs if run.record})
    ended = sorted(str(run.record["ended"])[:10] for run in runs if run.record.get("ended"))
    facts = [*shared_facts(runs), *([("commit", ", ".join(commits))] if commits else [])]
    name = ", ".join(dict.fromkeys(str(run.config.get("name", "runs")) for run in runs))
    lines = [f"# {escape(name)}", "", *(f"- {fact}: {escape(value)}" for fact, value in facts)]
    lines += [f"- measured: {ended[-1] if ended else 'not finished'}; page of {datetime.now(UTC):%Y-%m-%d}", ""]
    if commands := command(runs):
        lines += ["```", *commands, "```", ""]
    lines += [*_table(runs, shown), "", *(f"{line}  " for line in legend(runs, shown))]
    lines += _paired(runs, shown)
    failed = [f"- {run.number} {escape(run.label)}: {escape(run.reason)}" for run in runs if run.reason]
    notes = [f"- {escape(warning)}" for warning in warnings(runs, shown)]
    lines += ["", "## Failed", "", *failed] if failed else []
    lines += ["", "## Before you compare", "", *notes] if notes else []
    return "\n".join(lines)


def escape(text: str) -> str:
    """One line that Markdown shows as it is, also in a table and where HTML is let through."""
    for character in "\\`*_[]|#":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").split())


def _table(runs: Sequence[Run], shown: Sequence[Column]) -> list[str]:
    by_column = [figures(runs, column) for column in shown]
    head = ["#", "run", "status", *(f"{column.header} {column.arrow}".strip() for column in shown)]
    rows = [
        [str(run.number), escape(run.label), run.status, *(_cell(column[i]) for column in by_column)]
        for i, run in enumerate(runs)
    ]
    return laid_out(head, rows, left=2)


def laid_out(head: list[str], rows: list[list[str]], left: int) -> list[str]:
    """A table; left: columns after the first that are words."""
    rule = ["--:", *["---"] * left, *["--:"] * (len(head) - left - 1)]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *rows)]


def _cell(figure: Figure) -> str:
    text = f"**{figure.text}**" if figure.best else f"({figure.text})" if figure.doubtful else figure.text
    text = f"{'≈ ' if figure.tied else ''}{text}"
    more = [f"±{figure.error}" if figure.error else "", figure.delta, f"n={figure.n}" if figure.n is not None else ""]
    return " ".join([text, *filter(None, more)])


def _paired(runs: Sequence[Run], shown: Sequence[Column]) -> list[str]:
    found = [(column, apart) for column in shown if (apart := against_best(runs, column))]
    if not found:
        return []
    rows = [
        [
            str(run.number),
            escape(run.label),
            *(
                "-"
                if run.number not in apart
                else "**best**"
                if (one := apart[run.number]) is None
                else f"{'' if one.told_apart else '≈ '}{column.signed(one.mean)} ±{column.text(one.error)} n={one.n}"
                for column, apart in found
            ),
        ]
        for run in runs
        if any(run.number in apart for _, apart in found)
    ]
    words = "Minus the best comparable run, prompt by prompt: mean ± standard error; ≈: less than two of them."
    head = ["#", "run", *(f"{column.header} {column.arrow}" for column, _ in found)]
    return ["", "## Paired differences", "", words, "", *laid_out(head, rows, left=1)]
