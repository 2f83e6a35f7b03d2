"""On what is measured, with which methods, and where results are kept."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otil_exp.run_folder.whole import write_text

METHODS = (
    *("guide", "full_sync", "otil", "distrifusion", "balanced", "tensor", "naive_patch"),
    *("otil_context", "tensor_stale"),
)


@dataclass(frozen=True)
class Plan:
    out: Path
    device: str
    model: str
    world_size: int

    @property
    def topologies(self) -> tuple[str, str]:
        return f"{self.world_size}gpu_nosplit", f"{self.world_size}gpu_split"

    @property
    def engine(self) -> str:
        """The engine that is compared; without a GPU there are no graphs."""
        return "cuda_graph" if self.device == "cuda" else "eager"

    @property
    def compiling(self) -> str:
        """The engine that compiles; on the CPU, where that takes too long for a trial, another takes its place."""
        return "compiled" if self.device == "cuda" else "eager"

    def trial(self, side: int) -> tuple[str, ...]:
        """What a trial without GPUs changes of an experiment whose pictures have that side (pixels)."""
        if self.model == "sdxl_random":
            return ()
        pixels, steps = self.sizes(side)
        shape = (f"height={pixels}", f"num_inference_steps={steps}", f"model={self.model}")
        return (*shape, f"device={self.device}", f"engine={self.compiling}")

    def sizes(self, side: int) -> tuple[int, int]:
        """Side of the pictures (pixels) and num_inference_steps; small where the script is only tried."""
        return (side, 50) if self.model == "sdxl_random" else (side // 4, 8)


def results(plan: Plan) -> dict[str, Any]:
    """All that was kept so far: part -> what it measured."""
    path = plan.out / "results.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def forget(part: str, key: str, plan: Plan) -> None:
    """Drop what an earlier call kept, where it is no longer so."""
    everything = results(plan)
    if everything.get(part, {}).pop(key, None) is not None:
        _write(everything, plan)


def keep(part: str, key: str, value: Any, plan: Plan) -> None:
    """Add one figure to a part's results on disk, and say it."""
    print(f"{part} {key}: {value}", flush=True)
    everything = results(plan)
    everything.setdefault(part, {})[key] = value
    _write(everything, plan)


def _write(everything: dict[str, Any], plan: Plan) -> None:
    write_text(plan.out / "results.json", json.dumps(everything, indent=1))
