"""A whole SDXL picture of one rank on one GPU: what lies around the steps, and OTIL's exchange.

    python -m benchmarks.one_gpu_image RESULT.json ENGINE [PRESET ...]

Runs RankPipeline as a user composes it (model=sdxl_random, 50 steps, 4gpu_split, 1024 x 1024), with peers played by
torch's fake process group: what NCCL takes is not in it. Writes milliseconds of the picture, its steps, the text
encoders and the VAE, whole and over the ranks; what makes the host wait; the graphs that a second picture makes; and
microseconds of an exchange at K=64, k=16. STEPS=8 in the environment makes a trial of it.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException

from benchmarks.one_gpu_speed.measure import host_waits
from otil_exp.cells.prepare import prepare
from otil_exp.choices import Engine
from otil_exp.conf_tree import conf_folder
from otil_exp.config import ExperimentConfig
from otil_exp.cuda_graphs import CudaGraphRecorder
from otil_exp.exchange import BlockGrid, LatentExchange, ReplayedExchange
from otil_exp.fake_peers import among_fake_peers
from otil_exp.methods.geometry import topology_of
from otil_exp.pipeline import build_pipeline
from otil_exp.rank_unet.sliced.decoder import sliced_vae
from otil_exp.schema import register_schema
from otil_exp.topology import Topology
from otil_exp.traffic import TrafficCounter

STEPS = int(os.environ.get("STEPS", 50))


def main() -> int:
    options = _options()
    configs = [(preset, composed(preset, options.engine)) for preset in options.presets]
    results: list[dict[str, Any]] = []

    def keep(figures: dict[str, Any]) -> None:
        results.append(figures)
        print(json.dumps(figures), flush=True)
        options.result.write_text(json.dumps(results, indent=1))

    if torch.cuda.is_available():
        keep({"exchange_us": exchanges_us()})
    for preset, config in configs:
        keep({"preset": preset, "engine": options.engine, **picture(config)})
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
    return 0


def composed(preset: str, engine: str) -> ExperimentConfig:
    """The config of a user's command, checked."""
    register_schema()
    model = "sdxl_random" if torch.cuda.is_available() else "shapes"
    overrides = [f"preset={preset}", f"engine={engine}", f"model={model}", f"num_inference_steps={STEPS}"]
    overrides += ["topology=4gpu_split", "output_dir=/tmp/one_gpu_image", "device=auto"]
    os.environ["LOCAL_WORLD_SIZE"] = "4"  # as under a scheduler that shows each rank one GPU: the fake peers need none
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        try:
            return prepare(compose("config", overrides)).effective
        except (HydraException, ValueError) as error:
            sys.exit(str(error))


def picture(config: ExperimentConfig) -> dict[str, Any]:
    """What one picture after another takes, the first untimed."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    ranks = among_fake_peers(topology_of(config), device)
    start = time.perf_counter()
    with build_pipeline(config, ranks) as pipeline:
        found: dict[str, Any] = {"ready_s": time.perf_counter() - start, "runs_as": pipeline.runs_as}
        pipeline("a cat", 0)
        graphs = _graphs()
        found |= denoising(pipeline)
        found["text_ms"] = _fastest(lambda: pipeline.pipeline.encode_prompt("a dog", device=device))
        found["with_vae_ms"] = _fastest(lambda: pipeline("a dog", 1))
        found["around_steps"] = 1 - (found["steps_ms"] + found["text_ms"]) / found["denoising_ms"]
        found["new_graphs"] = _graphs() - graphs
        if device.type == "cuda":
            found["host_waits"] = host_waits(lambda: pipeline("a dog", 1, decode=False))
            found["peak_mib"] = torch.cuda.max_memory_allocated() / 2**20
        if ranks.topology.world_size > 1:
            pipeline.pipeline.vae = sliced_vae(pipeline.pipeline.vae, ranks)
            found["with_sliced_vae_ms"] = _fastest(lambda: pipeline("a dog", 1))
    return found


def denoising(pipeline: Any) -> dict[str, float]:
    """The fastest of three pictures without the VAE: wall time, and its steps between events on the GPU."""
    timed = [_timed(lambda: pipeline("a dog", 1, decode=False)) for _ in range(3)]
    milliseconds, generated = min(timed, key=lambda pair: pair[0])
    by_kind = {kind: [step.ms for step in generated.steps if step.step.kind == kind] for kind in ("warmup", "steady")}
    medians = {f"{kind}_ms": median(times) for kind, times in by_kind.items() if times}
    return {"denoising_ms": milliseconds, "steps_ms": sum(step.ms for step in generated.steps), **medians}


def exchanges_us() -> dict[str, float]:
    """GPU time of an exchange at K=64, k=16, without NCCL, called and replayed, microseconds."""
    found = {}
    ranks = among_fake_peers(Topology(world_size=4, split_batch=False), torch.device("cuda"))
    latents = torch.randn(1, 4, 128, 128, device="cuda", dtype=torch.float16)
    called = LatentExchange(BlockGrid(32, 128, 8), 0, slices=4, k=16, group=ranks.batch_group)
    replayed = ReplayedExchange(called, TrafficCounter(), CudaGraphRecorder())
    replayed.prepare(latents)
    for name, exchange in (("called", called), ("replayed", replayed)):
        found[name] = _gpu_us(lambda exchange=exchange: exchange.step(latents))
    return found


def _gpu_us(run: Any) -> float:
    """Microseconds of a call on the GPU: the host is ahead, behind a long kernel."""
    for _ in range(3):
        run()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(200_000_000)
    start.record()
    for _ in range(20):
        run()
    end.record()
    torch.cuda.synchronize()
    return 1e3 * float(start.elapsed_time(end)) / 20


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.one_gpu_image",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("result", type=Path, help="file of the results")
    parser.add_argument("engine", choices=[engine.name for engine in Engine])
    parser.add_argument("presets", nargs="*", metavar="preset", help="without any, the exchange alone is timed")
    options = parser.parse_args()
    if not options.presets and not torch.cuda.is_available():
        parser.error("name a preset, such as otil: without a GPU there is no exchange to time")
    return options


def _graphs() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def _fastest(run: Any) -> float:
    return min(_timed(run)[0] for _ in range(3))


def _timed(run: Any) -> tuple[float, Any]:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    result = run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start), result


if __name__ == "__main__":
    sys.exit(main())
