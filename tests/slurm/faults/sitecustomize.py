"""Planted faults: Python runs this at its start where the folder is on PYTHONPATH, in every rank of a job.

OTIL_EXP_FAULTS="METHOD:RANK:WHAT,..."; WHAT is raise (an exception), kill (SIGKILL of itself), slow (rank 0 rests after
each picture of a run that goes on with none) or stall (rank 0 rests for ever after its second picture, in the first
start of a job). "late:FILE": a job makes a file in its first start, and rests before it has any handler of signals.
"memory": each rank of a job takes 2 GB at its start.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

REST_S = 2.5


class Planted(MetaPathFinder):
    """Wraps `generate` as its module is loaded."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != "otil_exp.run.generation":
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None
        loader: Any = spec.loader
        load = loader.exec_module

        def load_and_plant(module: Any) -> None:
            load(module)
            module.generate = planted(module.generate)

        loader.exec_module = load_and_plant
        return spec


def planted(generate: Any) -> Any:
    def generate_or_fail(pipeline: Any, prompts: Any, folder: Any, tracker: Any) -> None:
        place = f"{folder.record.get('method')}:{pipeline.ranks.rank}:"
        for fault in os.environ["OTIL_EXP_FAULTS"].split(","):
            if fault == place + "raise":
                raise RuntimeError("a planted fault")
            if fault == place + "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if fault == place + "slow" and not folder.record["resumed"]:
                folder.write_image = resting(folder.write_image, REST_S)
            if fault == place + "stall" and "SLURM_RESTART_COUNT" not in os.environ:
                folder.write_image = resting(folder.write_image, 0, 600)
        generate(pipeline, prompts, folder, tracker)

    return generate_or_fail


def resting(write: Any, *seconds: float) -> Any:
    rests = list(seconds)

    def write_and_rest(*picture: Any) -> None:
        write(*picture)
        time.sleep(rests.pop(0) if len(rests) > 1 else rests[0])

    return write_and_rest


def starts_a_rank() -> bool:
    return "submitit.core._submit" in sys.orig_argv[:4]


def rest_in_a_job_that_starts(fault: str) -> None:
    if starts_a_rank() and "SLURM_RESTART_COUNT" not in os.environ:
        Path(fault.removeprefix("late:")).touch()
        time.sleep(2 * REST_S)


with contextlib.suppress(ImportError):  # tests/preloaded is on PYTHONPATH where processes start so
    from stand_in import ask

    ask()
if os.environ.get("OTIL_EXP_FAULTS", "").startswith("late:"):
    rest_in_a_job_that_starts(os.environ["OTIL_EXP_FAULTS"])
elif os.environ.get("OTIL_EXP_FAULTS") == "memory":
    taken = b"x" * (starts_a_rank() << 31)
elif os.environ.get("OTIL_EXP_FAULTS"):
    sys.meta_path.insert(0, Planted())
