"""The VAE's decoder: as the pipeline calls it, in a CUDA graph, in channels_last, with GroupNorms spread, compiled."""

from __future__ import annotations

import time
from typing import Any

import torch
from diffusers import AutoencoderKL
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks.around_the_steps.clock import furthest, reserved_mib, times_ms, wait
from otil_exp.cuda_graphs import CudaGraphRecorder
from otil_exp.models.families import Pipeline
from otil_exp.spread_groupnorm import spread_groupnorms

KERNELS = 8
"""That take longest, and are named."""


def decoder(pipeline: Pipeline, size: int, device: torch.device) -> dict[str, Any]:
    """Milliseconds of decoding one latent of size x size pixels, and how far pictures (of -1 to 1) are off."""
    vae, latents = pipeline.vae, _latents(pipeline, size, device)
    loaded, works_in = vae.dtype, _works_in(pipeline)

    def as_the_pipeline() -> Tensor:
        vae.to(works_in)
        picture = _decoded(vae, latents)
        vae.to(loaded)
        return picture

    found: dict[str, Any] = {"as the pipeline": times_ms(as_the_pipeline, repeats=5)}
    vae.to(works_in)
    expected = _decoded(vae, latents)
    on_host = times_ms(lambda: pipeline.image_processor.postprocess(expected, output_type="np"), repeats=5)
    found |= {"to the host": on_host, "kept in its dtype": _timed(vae, latents, expected)}
    if device.type == "cuda":
        before = reserved_mib()
        captured = CudaGraphRecorder()(lambda: _decoded(vae, latents))
        found["replayed"] = times_ms(captured.replay, repeats=5) | furthest([captured.output], [expected])
        found["replayed"]["graph_mib"] = reserved_mib() - before
        del captured
    spread = spread_groupnorms(vae)
    found["GroupNorms spread"] = _timed(spread, latents, expected)
    vae.decoder.to(memory_format=torch.channels_last)  # of both: they have the same weights
    found["channels_last"] = _timed(vae, latents, expected)
    found["GroupNorms spread, channels_last"] = _timed(spread, latents, expected)
    vae.decoder.to(memory_format=torch.contiguous_format)
    vae.to(loaded)
    return found


def _decoded(vae: AutoencoderKL, latents: Tensor) -> Tensor:
    picture: Tensor = vae.decode(latents, return_dict=False)[0]
    return picture


def _timed(vae: AutoencoderKL, latents: Tensor, expected: Tensor) -> dict[str, Any]:
    """Of one VAE: its times, how far its picture is off, and on a GPU its kernels."""

    def decoded() -> Tensor:
        return _decoded(vae, latents)

    found: dict[str, Any] = times_ms(decoded, repeats=5) | furthest([decoded()], [expected])
    return found | ({"kernels": _kernels(decoded)} if latents.is_cuda else {})


def compiled_decoder(pipeline: Pipeline, size: int, device: torch.device) -> dict[str, Any]:
    """The same decoder through torch.compile, once with its weights in channels_last."""
    vae, latents = pipeline.vae.to(_works_in(pipeline)), _latents(pipeline, size, device)
    found: dict[str, Any] = {}
    expected = _decoded(vae, latents)
    for layout in (torch.contiguous_format, torch.channels_last):
        module = vae.decoder.to(memory_format=layout)
        torch.compiler.reset()
        run = torch.compile(module, fullgraph=True, dynamic=False)
        start = time.perf_counter()
        picture = run(vae.post_quant_conv(latents))
        wait()
        found[str(layout)] = {"ready_s": time.perf_counter() - start} | furthest([picture], [expected])
        found[str(layout)] |= times_ms(lambda run=run: run(vae.post_quant_conv(latents)), repeats=5)
    return found


def _works_in(pipeline: Pipeline) -> torch.dtype:
    """The dtype that diffusers' pipeline brings the VAE to for a picture."""
    upcast = pipeline.vae.dtype is torch.float16 and pipeline.vae.config.force_upcast
    return torch.float32 if upcast else pipeline.vae.dtype


def _latents(pipeline: Pipeline, size: int, device: torch.device) -> Tensor:
    generator, side = torch.Generator().manual_seed(0), size // pipeline.vae_scale_factor
    return torch.randn(1, 4, side, side, generator=generator).to(device, _works_in(pipeline))


def _kernels(run: Any) -> list[str]:
    """Where the GPU spends a call: its kernels by total time, the longest ones."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        run()
        torch.cuda.synchronize()
    found = sorted(profiler.key_averages(), key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in found)
    lines = [f"{total / 1e3:.2f} ms in {sum(event.count for event in found)} kernels"]
    return lines + [f"{e.self_device_time_total / 1e3:.2f} ms, {e.count} x {e.key[:90]}" for e in found[:KERNELS]]
