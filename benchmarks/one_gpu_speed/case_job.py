"""A case as a job: build one rank's UNet, say so, wait for the word, time it."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.one_gpu_speed.cases import Case
from benchmarks.side_by_side import Files, Job
from otil_exp.run_folder.whole import write_text


class CaseJob(Job):
    """Leaves, besides its log, what was measured (.json), the step's output (.pt) and its kernels (.kernels)."""

    def __init__(self, case: Case, folder: Path) -> None:
        super().__init__(case.name, folder, run_case, case)

    def start(self) -> None:
        self.result.unlink(missing_ok=True)
        super().start()

    @property
    def result(self) -> Path:
        return self.files.path("json")


def run_case(case: Case, files: Files) -> None:
    """What the process of a job does. ready_s: of building and compiling, without imports."""
    # Late, because who starts the jobs needs none of it.
    from benchmarks.one_gpu_speed.measure import kernels, measured
    from benchmarks.one_gpu_speed.rank import prepared_unet
    from otil_exp.topology import single_rank

    start = time.monotonic()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    unet, inputs = prepared_unet(case, device)
    ready_s = time.monotonic() - start
    files.halt(single_rank(device))
    figures, output = measured(unet, inputs, case, device)
    torch.save(output.cpu(), files.path("pt"))
    write_text(files.path("json"), json.dumps({"case": case.name, **asdict(case), "ready_s": ready_s, **figures}))
    if device.type == "cuda":
        files.path("kernels").write_text(kernels(unet, inputs, case))
