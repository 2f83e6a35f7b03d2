"""The text encoders of a pipeline, called and replayed from CUDA graphs as runs do."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from benchmarks.around_the_steps.clock import furthest, reserved_mib, times_ms, wait
from otil_exp.cuda_graphs import CudaGraphRecorder
from otil_exp.models.families import Pipeline
from otil_exp.text_encoder_graphs import replay_text_encoders

PROMPTS = ("a dog", "a photograph of an astronaut riding a horse on the moon, in the style of an old master")


def text(pipeline: Pipeline, device: torch.device) -> dict[str, Any]:
    """Milliseconds of encoding a prompt, its tokens included; on a GPU also replayed, and how far that is off."""

    def encoded(prompt: str = PROMPTS[0]) -> list[Tensor]:
        return [one for one in pipeline.encode_prompt(prompt, device=device) if one is not None]

    found: dict[str, Any] = {"called": times_ms(encoded), "tokens": times_ms(lambda: _tokens(pipeline))}
    if device.type == "cpu":
        return found
    expected = [tensor for prompt in PROMPTS for tensor in encoded(prompt)]
    before = reserved_mib()
    with replay_text_encoders(pipeline, CudaGraphRecorder()):
        start = time.perf_counter()
        encoded("")
        wait()
        found["capture_s"] = time.perf_counter() - start
        found["replayed"] = times_ms(encoded)
        found |= furthest([tensor for prompt in PROMPTS for tensor in encoded(prompt)], expected)
        found["graphs_mib"] = reserved_mib() - before
    return found


def _tokens(pipeline: Pipeline) -> None:
    """What diffusers does before it calls the encoders: each tokenizer twice, once to see what was cut."""
    for tokenizer in (pipeline.tokenizer, getattr(pipeline, "tokenizer_2", None)):
        if tokenizer is not None:
            tokenizer(PROMPTS[0], padding="max_length", max_length=77, truncation=True, return_tensors="pt")
            tokenizer(PROMPTS[0], padding="longest", return_tensors="pt")
