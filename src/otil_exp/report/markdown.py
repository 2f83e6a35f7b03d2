"""A result page in Markdown: command, hardware, versions, date, table with its legend, and what it does not say."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from otil_exp.choices import Mode
from otil_exp.report.collect import Run
from otil_exp.report.columns import BY_KIND, Column, columns
from otil_exp.report.comparable import commit, meaningless
from otil_exp.report.figures import Figure, figures
from otil_exp.report.header import command, shared_facts
from otil_exp.report.legend import legend
from otil_exp.report.paired import against_best
from otil_exp.report.published import Published
from otil_exp.report.warn import warnings


def result_page(runs: Sequence[Run], published: Published | None = None) -> str:
    """The page of these runs; text of theirs is escaped where Markdown or HTML would read it.

    published: what papers report, for a section of its own.
    """
    timed = any(run.config.get("mode") == Mode.benchmark.name for run in runs)
    shown = [column for column in columns(runs) if column.core or (timed and column.key in BY_KIND)]
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
    lines += _spread(runs, shown)
    lines += _published(published) if published else []
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
    words = "Minus the best comparable run, prompt by prompt: mean ± standard error; ≈: may be chance."
    head = ["#", "run", *(f"{column.header} {column.arrow}" for column, _ in found)]
    return ["", "## Paired differences", "", words, "", *laid_out(head, rows, left=1)]


def _spread(runs: Sequence[Run], shown: Sequence[Column]) -> list[str]:
    """Median and percentiles of times that mean something: a mean hides a few slow steps."""
    rows = []
    for column in shown:
        for run in runs:
            entry = run.entry(column.key)
            known = [entry[part] for part in ("value", "median", "p5", "p95") if entry.get(part) is not None]
            if len(known) == 4 and not meaningless(run, column.key):
                rows.append([str(run.number), escape(run.label), escape(column.header), *map(column.text, known)])
    if not rows:
        return []
    head = ["#", "run", "time", "mean", "median", "5 %", "95 %"]
    return ["", "## Spread of times", "", *laid_out(head, rows, left=2)]


def _published(published: Published) -> list[str]:
    words = "Measured minus published, for runs of the same method, model, size, steps, scheduler, GPUs and split."
    lines = ["", "## Published beside measured", "", words]
    for match in published.matches:
        paper, table, row = match.line.paper, match.line.table, match.line.row
        head = ["figure", "how it was computed", "published", "measured", "difference"]
        rows = [
            [escape(one.header), escape("; ".join(one.notes)), one.published, one.measured, one.difference]
            for one in match.figures
        ]
        figures = laid_out(head, rows, left=1)
        figures[1] = figures[1].replace("--:", "---", 1)
        title = f"**{match.run.number} {escape(match.run.label)}**: {escape(match.line.title)}"
        lines += ["", title, "", *figures, ""]
        lines += [f"Second-hand: {escape(paper.second_hand)}.  "] if paper.second_hand else []
        lines += [f"Does not match: {escape('; '.join(match.apart))}.  "] if match.apart else []
        lines += [f"{escape(note)}.  " for note in (table.note, row.note) if note]
        lines += [f"Source: {escape(paper.source)}."]
    lines += [] if not published.unmatched else ["", "Without a published figure:", ""]
    return lines + [f"- {run.number} {escape(run.label)}: {escape(why)}" for run, why in published.unmatched]
