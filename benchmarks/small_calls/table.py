"""What was measured, as a file for programs and as a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import triton

from benchmarks.small_calls.case import ON_CPU, Case
from benchmarks.small_calls.cases import CASES

HEAD = "| call | of a step | way | µs | ms a step | floor, µs | largest error |\n|---|---|---|---|---|---|---|"


def machine() -> str:
    device = "CPU, tiny shapes, kernels interpreted: times mean nothing" if ON_CPU else torch.cuda.get_device_name()
    return f"{device}, torch {torch.__version__}, triton {triton.__version__}"


def write(folder: Path, lines: list[dict[str, Any]]) -> str:
    """Write results.json and table.md; returns the table. lines: of the workers."""
    by_name = {line["name"]: line for line in lines if "name" in line}
    began = {line["begun"] for line in lines if "begun" in line}
    results = [result for case in CASES for result in _of_case(case, by_name, began)]
    (folder / "results.json").write_text(json.dumps({"machine": machine(), "results": results}, indent=1) + "\n")
    table = "\n".join([machine(), "", HEAD, *(row for case in CASES for row in _rows(case, results))]) + "\n"
    (folder / "table.md").write_text(table)
    return table


def _of_case(case: Case, by_name: dict[str, dict[str, Any]], began: set[str]) -> list[dict[str, Any]]:
    found = []
    for one in case.candidates:
        name = case.name_of(one)
        missing = "ended its process, or took too long" if name in began else "no time was left"
        words = {"part": case.part, "what": case.what, "family": one.family, "config": one.config}
        known = {"count": case.count, "floor_us": case.floor_us}
        found.append(words | known | by_name.get(name, {"failed": missing}))
    return found


def _rows(case: Case, results: list[dict[str, Any]]) -> list[str]:
    """One a family: its fastest config, or why there is none."""
    own = [result for result in results if (result["part"], result["what"]) == (case.part, case.what)]
    families: dict[str, list[dict[str, Any]]] = {}
    for result in own:
        families.setdefault(result["family"], []).append(result)
    return [_row(case, family, members) for family, members in families.items()]


def _row(case: Case, family: str, members: list[dict[str, Any]]) -> str:
    start = f"| {case.part}: {case.what} | {case.count} | {family}"
    measured = [one for one in members if "us" in one]
    if not measured:
        return f"{start} | {members[0]['failed'].splitlines()[0][:120]} | | {case.floor_us:.2f} | |"
    best = min(measured, key=lambda one: one["us"])
    way = f"{start} ({best['config']})" if best["config"] else start
    times = f"{best['us']:.2f} | {best['us'] * case.count / 1000:.3f} | {case.floor_us:.2f}"
    return f"{way} | {times} | {best['error']:.1e} |"
