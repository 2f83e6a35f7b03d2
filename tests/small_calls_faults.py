"""benchmarks.small_calls with three candidates, of which one fails and one ends its process: run by its test."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import torch

from benchmarks.small_calls import __main__ as call
from benchmarks.small_calls import table, worker
from benchmarks.small_calls.case import Candidate, Case


def fails(one: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("no such luck")


def ends_its_process(one: torch.Tensor) -> torch.Tensor:
    os._exit(1)


def doubled(one: torch.Tensor) -> torch.Tensor:
    return 2 * one


CASE = Case(
    "doubling",
    "3 values",
    1000,
    0.5,
    lambda: [torch.arange(3).half()],
    lambda one: 2 * one.double(),
    (
        Candidate("fails", fails),
        Candidate("ends", ends_its_process),
        Candidate("works", doubled),
        Candidate("off by a quarter of the largest value", lambda one: 2 * one + 1),
    ),
)


def worker_here(folder: object, log: Any, *part: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, "worker", str(folder)], stdout=log, stderr=subprocess.STDOUT)


if __name__ == "__main__":
    table.CASES = worker.CASES = [CASE]  # type: ignore[misc]
    call._worker = worker_here
    role = sys.argv.pop(1)
    sys.exit(worker.main() if role == "worker" else call.main())
