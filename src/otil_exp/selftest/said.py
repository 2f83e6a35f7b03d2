"""What the self-test says: a table of the parts, the curves by size, and whether the machine is fit."""

from __future__ import annotations

from collections.abc import Mapping

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from otil_exp.selftest.plan import CURVE, Finding, State

COLOURS = {State.fine: "green", State.slow: "yellow", State.broken: "red", State.left_out: "dim"}


def verdict(findings: Mapping[str, Finding]) -> bool:
    """Whether the machine is fit: nothing is broken."""
    return all(found.state is not State.broken for found in findings.values())


def say(findings: Mapping[str, Finding], out: Console) -> None:
    """Print the table, the curves, and the verdict in a sentence."""
    out.print(_parts(findings), soft_wrap=False)
    for found in findings.values():
        curves = {name.removesuffix(CURVE): figure for name, figure in found.figures.items() if name.endswith(CURVE)}
        if curves:
            out.print(_curves(curves), soft_wrap=False)
    out.print(conclusion(findings), style=None if verdict(findings) else "red")


def conclusion(findings: Mapping[str, Finding]) -> str:
    """Whether the machine is fit, and which parts are behind that."""

    def named(state: State) -> str:
        return ", ".join(name for name, found in findings.items() if found.state is state)

    if broken := named(State.broken):
        return f"unfit: {broken}"
    slow, left_out = named(State.slow), named(State.left_out)
    return "fit" + (f"; slow: {slow}" if slow else "") + (f"; left out: {left_out}" if left_out else "")


def _parts(findings: Mapping[str, Finding]) -> Table:
    table = Table("part", "is", "what was found", "s", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title="otil-selftest")
    for name, found in findings.items():
        state = Text(found.state.value, style=COLOURS[found.state])
        table.add_row(name, state, Text(found.sentence, overflow="fold"), f"{found.seconds:.0f}")
    return table


def _curves(curves: Mapping[str, Mapping[str, float]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title="ms, called from the host")
    for header in ("bytes", *curves):
        table.add_column(header, justify="right")
    for size in sorted({size for curve in curves.values() for size in curve}, key=int):
        times = [f"{curve[size]:.3f}" if size in curve else "-" for curve in curves.values()]
        table.add_row(f"{int(size):,}", *times)
    return table
