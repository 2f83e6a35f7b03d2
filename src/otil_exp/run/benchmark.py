"""mode=benchmark: how long the denoising of a picture takes, VAE excluded."""

from __future__ import annotations

import time
from functools import partial
from statistics import fmean, stdev
from typing import Any

import torch
from torch import distributed as dist

from otil_exp.metrics.summary import entry
from otil_exp.phases import Pulse, phase
from otil_exp.pipeline import RankPipeline
from otil_exp.prompts import Prompt
from otil_exp.run.cost import cost_metrics, memory_metrics, stage_metrics
from otil_exp.run.generation import gather_rows, messages_of, note_peak_memory, note_products
from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.steps import StepRow
from otil_exp.terminal import console


def benchmark(pipeline: RankPipeline, prompts: list[Prompt], folder: RunFolder) -> None:
    """Time the first prompt: untimed images first, then repeats; raw samples go to metrics.json and steps.csv.

    A sample is the wall time from a barrier to the end of the last kernel on rank 0: encoding the prompt and all steps.
    """
    settings, prompt = pipeline.config.benchmark, prompts[0]
    pulse = Pulse(console(quiet=not pipeline.ranks.is_main).print)
    pipeline.calibrate(prompt.text, prompt.seed)
    with phase("warming up", live=False):
        for number in range(settings.warmup_images):
            pulse.beat(partial("warming up: picture {}/{}".format, number + 1, settings.warmup_images))
            pipeline(prompt.text, prompt.seed, decode=False)
    samples: list[float] = []
    rows: list[StepRow] = []
    with phase("timing", f"timing {settings.repeats} pictures", live=False):
        for repeat in range(settings.repeats):
            pulse.beat(partial("timing: picture {}/{}".format, repeat + 1, settings.repeats))
            _rendezvous(pipeline)
            start = time.perf_counter()
            generated = pipeline(prompt.text, prompt.seed, decode=False)
            _rendezvous(pipeline)
            samples.append(time.perf_counter() - start)
            rows += gather_rows(pipeline, prompt.index, generated, repeat)
    note_products(pipeline, folder)
    note_peak_memory(pipeline, folder)
    if pipeline.ranks.is_main:
        folder.write_steps(rows)
        folder.write_messages(messages_of(generated))
        folder.update_metrics(
            cost_metrics(rows, warm=settings.warmup_images > 0)
            | memory_metrics(folder.record)
            | stage_metrics(folder.record)
            | {"latency/image_s": image_latency(samples, settings.drop_extremes)}
        )


def image_latency(samples: list[float], drop_extremes: int) -> dict[str, Any]:
    """Mean over the samples (seconds) without the drop_extremes fastest and slowest; the raw ones stay beside it."""
    kept = sorted(samples)[drop_extremes : len(samples) - drop_extremes]
    assert kept, "validation leaves at least one sample"
    spread = stdev(kept) if len(kept) > 1 else None
    return entry("latency/image_s", fmean(kept), len(kept), stdev=spread, dropped=2 * drop_extremes, samples=samples)


def _rendezvous(pipeline: RankPipeline) -> None:
    """All ranks here, all kernels done."""
    if pipeline.ranks.device.type == "cuda":
        torch.cuda.synchronize()
    if pipeline.ranks.topology.world_size > 1:
        dist.barrier()
