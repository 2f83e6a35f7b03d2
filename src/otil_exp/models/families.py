"""What differs from one class of diffusers' pipelines to another: its parts, and what its UNet is told besides text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
from diffusers import StableDiffusionPipeline, StableDiffusionXLPipeline
from transformers import CLIPTextModel, CLIPTextModelWithProjection

from otil_exp.models.files import SD_PIPELINE, SDXL_PIPELINE

Pipeline: TypeAlias = StableDiffusionXLPipeline | StableDiffusionPipeline


class Family(ABC):
    """A class of pipelines."""

    pipeline: type[Any]

    options: Mapping[str, Any]
    """Arguments of its constructor: parts that are left out."""

    text_encoders: Mapping[str, type[Any]]
    """Class of each text encoder by the name of its part; the tokenizers' parts in the same order."""

    tokenizers: tuple[str, ...]

    @abstractmethod
    def conditions(
        self, pipeline: Any, height: int, width: int, device: torch.device
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """What the UNet gets for an empty prompt and a picture of height x width pixels.

        Returns encoder_hidden_states (1, tokens, width) and added_cond_kwargs, each (1, n).
        """


class StableDiffusionXL(Family):
    """Two text encoders; the UNet gets a pooled text and the sizes of the picture, too."""

    pipeline = StableDiffusionXLPipeline
    options: Mapping[str, Any] = {"add_watermarker": False}
    text_encoders: Mapping[str, type[Any]] = {
        "text_encoder": CLIPTextModel,
        "text_encoder_2": CLIPTextModelWithProjection,
    }
    tokenizers = ("tokenizer", "tokenizer_2")

    def conditions(
        self, pipeline: Any, height: int, width: int, device: torch.device
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        embeds, _, pooled, _ = pipeline.encode_prompt("", device=device, do_classifier_free_guidance=False)
        ids = torch.tensor([[height, width, 0, 0, height, width]])
        return embeds, {"text_embeds": pooled, "time_ids": ids.to(device, embeds.dtype)}


class StableDiffusion(Family):
    """One text encoder, and text is all that the UNet gets."""

    pipeline = StableDiffusionPipeline
    options: Mapping[str, Any] = {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
    text_encoders: Mapping[str, type[Any]] = {"text_encoder": CLIPTextModel}
    tokenizers = ("tokenizer",)

    def conditions(
        self, pipeline: Any, height: int, width: int, device: torch.device
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        embeds, _ = pipeline.encode_prompt("", device, 1, do_classifier_free_guidance=False)
        return embeds, {}


FAMILIES: Mapping[str, Family] = {SDXL_PIPELINE: StableDiffusionXL(), SD_PIPELINE: StableDiffusion()}
"""By the name of the pipeline's class."""


def family_of(pipeline: Pipeline) -> Family:
    """The family of a loaded pipeline."""
    return FAMILIES[type(pipeline).__name__]
