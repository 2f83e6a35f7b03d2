"""The process that measures, and those that compile for it.

    python -m benchmarks.small_calls.worker FOLDER              # measures what nobody has begun
    python -m benchmarks.small_calls.worker FOLDER PART PARTS   # calls every so-manieth candidate once

Each candidate adds a line when it begins and one when it is measured, so that one that takes the process down is known.
"""

from __future__ import annotations

import json
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch._inductor import config as inductor

from benchmarks.small_calls.case import ON_CPU, Candidate
from benchmarks.small_calls.cases import CANDIDATES, CASES
from benchmarks.small_calls.timing import largest_error, microseconds, wake

SEED = 0


def main() -> int:
    folder = Path(sys.argv[1])
    inductor.compile_threads = 1  # there are processes enough
    with torch.no_grad():
        if len(sys.argv) > 2:
            _compile(int(sys.argv[2]), int(sys.argv[3]))
        else:
            _measure(folder / "lines.jsonl")
    return 0


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _compile(part: int, parts: int) -> None:
    for case, candidate in CANDIDATES[part::parts]:
        try:
            candidate.call(candidate.prepare(case.inputs()[:1])[0])
            _synchronise()
        except Exception:  # said when it is measured
            _synchronise()


def _measure(file: Path) -> None:
    begun = {line["begun"] for line in lines_of(file) if "begun" in line}
    if not ON_CPU:
        wake()
    for case in CASES:
        left = [one for one in case.candidates if case.name_of(one) not in begun]
        if not left:
            continue
        torch.manual_seed(SEED)
        inputs = case.inputs()
        expected = case.expected(inputs[0])
        for candidate in left:
            _write(file, {"begun": case.name_of(candidate)})
            _write(file, {"name": case.name_of(candidate)} | _measured(candidate, inputs, expected))
            _synchronise()


def _measured(candidate: Candidate, inputs: list[Any], expected: torch.Tensor) -> dict[str, Any]:
    try:
        calls = [partial(candidate.call, one) for one in candidate.prepare(inputs)]
        error = largest_error(calls[0](), expected)
        return {"us": microseconds(calls), "error": error}
    except Exception as failure:
        traceback.print_exc()
        return {"failed": f"{type(failure).__name__}: {failure}"[:300]}


def _write(file: Path, line: dict[str, Any]) -> None:
    with file.open("a") as lines:
        lines.write(json.dumps(line) + "\n")


def _synchronise() -> None:
    """Fails, and with it the process, where a kernel has left the GPU useless."""
    if not ON_CPU:
        torch.cuda.synchronize()


if __name__ == "__main__":
    sys.exit(main())
