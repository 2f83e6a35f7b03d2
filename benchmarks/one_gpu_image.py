#!/usr/bin/env python3
"""A whole SDXL picture of one rank on one GPU: what lies around the steps, and OTIL's exchange.

    python benchmarks/one_gpu_image.py RESULT.json ENGINE [PRESET ...]

Runs RankPipeline as a user composes it (model=sdxl_random, 50 steps, 4gpu_split, 1024 x 1024), with peers played by
torch's fake process group: what NCCL takes is not in it. Writes milliseconds of the picture, its steps, the text
encoders, the VAE and the exchange, what makes the host wait, and the graphs that a second picture makes.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from one_gpu_speed import Case, fake_place

from otil_exp.app import conf_folder
from otil_exp.config import register_schema

STEPS = 50


def main(result: Path, engine: str, presets: list[str]) -> None:
    results = []
    for preset in presets:
        results.append({"preset": preset, "engine": engine, **picture(preset, engine)})
        print(json.dumps(results[-1]), flush=True)
        result.write_text(json.dumps(results, indent=1))


def picture(preset: str, engine: str) -> dict[str, Any]:
    """Milliseconds of one picture after another, the first untimed."""
    from otil_exp.cell import prepare
    from otil_exp.pipeline import build_pipeline

    register_schema()
    model = "sdxl_random" if torch.cuda.is_available() else "shapes"
    overrides = [f"preset={preset}", f"engine={engine}", f"model={model}", f"num_inference_steps={STEPS}"]
    overrides += ["topology=4gpu_split", "output_dir=/tmp/one_gpu_image", "device=auto"]
    os.environ["LOCAL_WORLD_SIZE"] = "4"  # as under a scheduler that shows each rank one GPU: the fake peers need none
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        config = prepare(compose("config", overrides)).effective
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    case = Case(preset, engine, 1024, config.topology.world_size, config.topology.split_batch)
    start = time.perf_counter()
    with build_pipeline(config, fake_place(case, device)) as pipeline:
        found: dict[str, Any] = {"ready_s": time.perf_counter() - start, "runs_as": pipeline.unet.runs_as}
        pipeline("a cat", 0)
        before = dict(torch._dynamo.utils.counters["stats"])
        denoised = [_timed(lambda: pipeline("a dog", 1, decode=False)) for _ in range(3)]
        found["denoising_ms"] = min(ms for ms, _ in denoised)
        steps = denoised[-1][1].steps
        found["steps_ms"] = sum(step.ms for step in steps)
        found["steady_ms"] = median(step.ms for step in steps if step.step.kind == "steady")
        found["text_ms"] = min(
            _timed(lambda: pipeline.pipeline.encode_prompt("a dog", device=device))[0] for _ in range(3)
        )
        found["with_vae_ms"] = min(_timed(lambda: pipeline("a dog", 1))[0] for _ in range(2))
        found["new_graphs"] = dict(torch._dynamo.utils.counters["stats"]) != before
        if device.type == "cuda":
            found |= {"host_waits": _waits(lambda: pipeline("a dog", 1, decode=False)), "peak_mib": _peak_mib()}
            if pipeline.exchange is not None:
                found["exchange_us"] = exchange_us(pipeline)
    return found


def exchange_us(pipeline: Any) -> float:
    """GPU time of an exchange at K=64, k=16, microseconds: the host is ahead, behind a long kernel."""
    latents = torch.randn(1, 4, 128, 128, device="cuda", dtype=torch.float16)
    exchange = pipeline.exchange
    exchange.remember(latents)
    for _ in range(3):
        exchange.step(latents)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(200_000_000)
    start.record()
    for _ in range(20):
        exchange.step(latents)
    end.record()
    torch.cuda.synchronize()
    return 1e3 * float(start.elapsed_time(end)) / 20


def _timed(run: Any) -> tuple[float, Any]:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    result = run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start), result


def _waits(run: Any) -> dict[str, int]:
    """Where the host waits for the GPU in a picture, and how often."""
    found: dict[str, int] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        run()
        torch.cuda.set_sync_debug_mode("default")
    for warning in caught:
        if "called a synchronizing" in str(warning.message):
            place = f"{'/'.join(Path(warning.filename).parts[-2:])}:{warning.lineno}"
            found[place] = found.get(place, 0) + 1
    return found


def _peak_mib() -> float:
    return torch.cuda.max_memory_allocated() / 2**20


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
