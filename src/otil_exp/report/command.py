"""`otil-report`: lay finished, failed and half-done runs side by side, from their folders alone."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from otil_exp.links import read_links, shipped
from otil_exp.published.tables import shipped as shipped_tables
from otil_exp.report.collect import Run, collect, find_folders
from otil_exp.report.csv_table import csv_table
from otil_exp.report.latex import latex_table
from otil_exp.report.markdown import result_page
from otil_exp.report.page import render
from otil_exp.report.projection_tables import Section, as_markdown, as_text, section
from otil_exp.report.published import beside_published
from otil_exp.report.table import summary
from otil_exp.run_folder.folder import RunFolder
from otil_exp.terminal import console, for_a_reader

EXAMPLES = """examples:
  otil-report outputs/demo                       writes outputs/demo/report.html, which needs no other file
  otil-report outputs/a outputs/b -o both.html   runs of two grids; full-size pictures are linked from where the page is
  otil-report outputs/demo --table               the table that ends a grid
  otil-report outputs/demo --markdown            a result page
  otil-report outputs/demo --latex -o table.tex  a table for a paper
  otil-report outputs/demo --csv -o all.csv      every figure, unrounded
  otil-report outputs/published_* --published    what papers report beside the runs that match, in page or --markdown
  otil-report outputs/demo --measured-on two_h200_nvlink --links pcie4_peers network_100g
                                                 what the runs would take on other links, projected"""

FORMS: dict[str, Callable[[Sequence[Run]], str]] = {"markdown": result_page, "latex": latex_table, "csv": csv_table}
"""What is printed instead of a page, by option."""


@for_a_reader()
def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `otil-report`; returns the exit code."""
    parser = _parser()
    parsed = parser.parse_args(argv)
    if parsed.table and parsed.output:
        parser.error("--table is printed as it ends a grid: leave -o out, or take --markdown, --latex or --csv")
    if parsed.published and (parsed.table or parsed.form in ("latex", "csv")):
        parser.error("--published goes into the page or --markdown: leave --table, --latex and --csv out")
    if parsed.output and parsed.output.is_dir():
        parser.error(f"-o {parsed.output} is a folder: name a file in it, such as {parsed.output / 'report.html'}")
    if parsed.links and parsed.form in ("latex", "csv"):
        parser.error(f"--{parsed.form} holds what was measured alone: take --markdown, --table or the page for --links")
    try:
        folders = find_folders(parsed.folders)
        projected = _projected(folders, parsed.links, parsed.measured_on)
    except (FileNotFoundError, ValueError) as error:
        console(stderr=True).print(str(error))
        return 1
    if parsed.table:
        console().print(summary(folders), *([as_text(projected)] if projected else []), soft_wrap=False)
        return 0
    runs = collect(folders)
    published = beside_published(runs, shipped_tables()[1]) if parsed.published else None
    if parsed.form:
        text = result_page(runs, published) if parsed.form == "markdown" else FORMS[parsed.form](runs)
        _write(f"{text}\n{as_markdown(projected)}" if projected else text, parsed.output)
    else:
        page = parsed.output or _beside(folders[0], parsed.folders[0])
        made = render(runs, page.parent, parsed.thumbnail, parsed.prompts, published=published, projection=projected)
        _write(made, page)
        print(f"{page}: {len(folders)} runs, {page.stat().st_size / 1e6:.1f} MB")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "otil-report", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="runs or grids: outputs/NAME[/SIG]")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--table", action="store_true", help="print the table that ends a grid, and no page")
    for name, words in (
        ("markdown", "a result page in Markdown: table with errors and n, legend, paired differences"),
        ("latex", "the table for a paper (booktabs)"),
        ("csv", "every figure of every run, unrounded"),
    ):
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=f"print {words}; no page")
    parser.add_argument("--published", action="store_true", help="put the figures of papers beside the runs that match")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: report.html beside the runs")
    parser.add_argument(
        "--thumbnail",
        type=_positive,
        default=256,
        metavar="PX",
        help="longest side of pictures in the page (256)",
    )
    parser.add_argument(
        "--prompts",
        type=_positive,
        metavar="N",
        help="show the pictures of the first N prompts (as many as 45 MB and 1200 pictures are)",
    )
    parser.add_argument(
        "--links",
        nargs="+",
        default=[],
        metavar="FILE_OR_NAME",
        help="project the runs to these links, marked so: files of otil-selftest --links, or names (docs/links.md)",
    )
    parser.add_argument("--measured-on", metavar="FILE_OR_NAME", help="the links on which the runs were made")
    return parser


def _projected(folders: Sequence[RunFolder], links: Sequence[str], measured_on: str | None) -> Section | None:
    """What --links asks for. Raises ValueError, with what to type."""
    if not links and measured_on is not None:
        raise ValueError(
            f"--measured-on {measured_on} projects nothing by itself: say to which links, with --links FILE_OR_NAME ..."
        )
    if not links:
        return None
    if measured_on is None:
        raise ValueError(
            "--links: say on which links these runs were made, with --measured-on FILE_OR_NAME: a file that "
            f"otil-selftest wrote there, or {', '.join(shipped())}"
        )
    return section(collect(folders), [read_links(one) for one in links], read_links(measured_on))


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return int(text)


def _beside(first: RunFolder, asked: Path) -> Path:
    """In the grid's folder, never in a run's own."""
    return (asked.parent if asked == first.path else asked) / "report.html"


def _write(text: str, path: Path | None) -> None:
    if path is None:
        print(text.removesuffix("\n"))
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if text.endswith("\n") else f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise SystemExit(f"{path} cannot be written ({error.strerror}): name another file with -o FILE") from error


if __name__ == "__main__":
    sys.exit(main())
