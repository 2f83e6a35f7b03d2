"""The table of a report for a paper in LaTeX (booktabs)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence

from otil_exp.report.collect import Run
from otil_exp.report.columns import columns
from otil_exp.report.figures import Figure, figures
from otil_exp.report.header import command, shared_facts
from otil_exp.report.legend import legend

SPECIAL = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "≈": r"$\approx$",
    "\u00d7": r"$\times$",
    "“": "``",
    "”": "''",
    "…": r"\dots{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "`": r"\textasciigrave{}",
}
"""What LaTeX would read as its own, or lacks."""

KNOWN = {*"\u2013\u2014\u2018\u2019", *map(chr, range(0xC0, 0x100))} - {*"\xd0\xde\xf0\xfe\xd7\xf7"}
"""What pdfLaTeX has beside ASCII, with no package and in its first font encoding."""


def latex_table(runs: Sequence[Run]) -> str:
    """A table environment; what was run is in comments above it. Needs \\usepackage{booktabs}."""
    shown = [column for column in columns(runs) if column.core]
    done = [run for run in runs if run.status == "done"]
    by_column = [figures(runs, column) for column in shown]
    comments = [*(f"{name}: {value}" for name, value in shared_facts(runs)), *command(runs)]
    head = ["run", *(f"{column.header} {column.arrow}".strip() for column in shown)]
    counts = {column[i].n for column in by_column for i, run in enumerate(runs) if run in done} - {None}
    rows = [
        [escape(run.label), *(_cell(column[i], with_n=len(counts) > 1) for column in by_column)]
        for i, run in enumerate(runs)
        if run in done
    ]
    return "\n".join(
        [
            *(f"% {line}" for comment in comments for line in comment.splitlines()),
            r"\begin{table}",
            r"\centering",
            rf"\begin{{tabular}}{{l{'r' * len(shown)}}}",
            r"\toprule",
            " & ".join(map(escape, head)) + r" \\",
            r"\midrule",
            *(" & ".join(row) + r" \\" for row in rows),
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{escape(' '.join([*legend(runs, shown), _samples(counts)]).strip())}}}",
            r"\end{table}",
        ]
    )


def escape(text: str) -> str:
    """Text that LaTeX sets as it is, but for characters that pdfLaTeX lacks."""
    apart = re.sub("-(?=-)", "\x00", " ".join(text.split()))  # two would become one longer dash
    return "".join("-{}" if character == "\x00" else SPECIAL.get(character) or _plain(character) for character in apart)


def _plain(character: str) -> str:
    """A character that pdfLaTeX has: itself, a letter without its accent, or a question mark."""
    if (character.isascii() and character.isprintable()) or character in KNOWN:
        return character
    bare = unicodedata.normalize("NFKD", character)[0]
    return bare if bare.isascii() and bare.isalnum() else "?"


def _cell(figure: Figure, *, with_n: bool) -> str:
    text = rf"\textbf{{{figure.text}}}" if figure.best else f"({figure.text})" if figure.doubtful else figure.text
    text = rf"$\approx$ {text}" if figure.tied else text
    text += rf" {{\scriptsize $\pm$ {figure.error}}}" if figure.error else ""
    text += rf" {{\scriptsize {escape(figure.delta)}}}" if figure.delta else ""
    return text + (rf" {{\scriptsize n = {figure.n}}}" if with_n and figure.n is not None else "")


def _samples(counts: Collection[int | None]) -> str:
    """n = 10 pictures, where all scores have the same; else it stands beside each."""
    return f"n = {next(iter(counts))} pictures." if len(counts) == 1 else "n: pictures." if counts else ""
