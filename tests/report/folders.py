"""Run folders made by hand: small, and every figure in them known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.steps import StepRow

PROMPTS = ("a red circle", "a blue square")

PICTURE = ("model", "height", "width", "num_inference_steps", "guidance_scale", "scheduler")
"""Parts of a config that make the picture key differ."""


def make_run(
    grid: Path, name: str, *, config: dict[str, Any] | None = None, metrics: dict[str, Any] | None = None, **record: Any
) -> RunFolder:
    """A finished otil run on 4 GPUs without pictures and steps, but for what is given; metrics: key -> value."""
    folder = RunFolder(grid / name)
    whole = {
        "name": "handmade",
        "height": 16,
        "width": 16,
        "num_inference_steps": 4,
        "guidance_scale": 5.0,
        "scheduler": "ddim",
        "groupnorm": "exact",
        "mode": "generate",
        "model": {"name": "shapes", "source": "package", "dtype": "float32"},
        "engine": {"name": "eager"},
    } | (config or {})
    folder.write_config(whole)
    folder.update_record(
        **{
            "status": "done",
            "signature": name,
            "picture_key": str([whole[key] for key in PICTURE]),
            "method": "otil",
            "is_reference": False,
            "effective": {"k": None, "refresh_period": 0},
            "topology": {"name": "4gpu_split", "world_size": 4, "split_batch": True},
            "seams": {"rows": [8], "columns": []},
            "device": "cuda",
            "times_meaningless": None,
            "prompts": [{"index": i, "text": text, "seed": i} for i, text in enumerate(PROMPTS)],
            "started": "2026-01-01T00:00:00+00:00",
            "ended": "2026-01-01T00:01:00+00:00",
            "host": "node1",
            "cpu": {"model": "C", "cores": 8},
            "gpus": ["G", "G", "G", "G"],
            "versions": {"torch": "2.11.0", "diffusers": "0.42.0"},
            "git_commit": "0123456789abcdef",
        }
        | record
    )
    if metrics:
        folder.update_metrics({key: v if isinstance(v, dict) else {"value": v, "n": 2} for key, v in metrics.items()})
    return folder


def make_reference(grid: Path, name: str = "0ref", **changes: Any) -> RunFolder:
    topology = {"name": "1gpu", "world_size": 1, "split_batch": False}
    alone = {"method": "reference", "is_reference": True, "topology": topology, "gpus": ["G"]}
    folder = make_run(grid, name, **{"metrics": {"latency/step_ms": 40.0}} | alone | changes)
    add_pictures(folder)
    return folder


def add_pictures(folder: RunFolder, level: int = 100, below: int = 0) -> None:
    """A flat grey picture a prompt, its lower half brighter by `below` levels."""
    picture = np.full((16, 16, 3), level, np.uint8)
    picture[8:] += below
    for prompt in folder.record["prompts"]:
        folder.write_image(prompt["index"], Image.fromarray(picture))


def add_steps(folder: RunFolder) -> None:
    kinds = ("warmup", "steady", "refresh", "final")
    folder.write_steps(
        [
            StepRow(rank, prompt, step, kind, 10.0 + step, 1000 * step, 2)
            for rank in range(2)
            for prompt in range(2)
            for step, kind in enumerate(kinds)
        ]
    )


def make_grid(grid: Path) -> list[RunFolder]:
    """A reference and two methods with pictures, scores and steps: otil is faster, full_sync closer."""
    seams = {"value": 8.0, "n": 2, "boundaries": ["row 8"], "per_image": {"00": [8.0], "01": [8.0]}}
    psnr = {"value": 30.0, "n": 2, "standard_error": 1.5, "per_image": {"00": 28.5, "01": 31.5}}
    otil = make_run(
        grid,
        "1otil",
        metrics={"latency/step_ms": 20.0, "ref/psnr": psnr, "ref/lpips_alex": 0.2, "ref/step_levels": seams},
    )
    full = make_run(
        grid,
        "2full",
        method="full_sync",
        metrics={"latency/step_ms": 32.0, "ref/psnr": 60.0, "ref/lpips_alex": 0.01},
    )
    folders = [make_reference(grid), otil, full]
    add_pictures(otil, below=8)
    add_pictures(full)
    for folder in folders:
        add_steps(folder)
    return folders
