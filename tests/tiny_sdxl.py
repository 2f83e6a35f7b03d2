"""A tiny SDXL with random weights, made in code: every kind of layer of the real UNet, in a fraction of a second."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionXLPipeline, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer

TEXT_WIDTH = 32
"""Width of each text encoder; the UNet sees both side by side."""


def tiny_unet(
    *,
    channels: tuple[int, ...] = (16, 32),
    depth: int = 1,
    groups: int = 4,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> UNet2DConditionModel:
    """An SDXL UNet with attention on all levels but the first. channels: one a level. depth: blocks of a transformer.

    Two levels have every kind of layer: blocks with and without attention, both samplers, shortcuts, embeddings.
    """
    below = len(channels) - 1
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        unet = UNet2DConditionModel(
            sample_size=16,
            down_block_types=("DownBlock2D", *("CrossAttnDownBlock2D",) * below),
            up_block_types=(*("CrossAttnUpBlock2D",) * below, "UpBlock2D"),
            block_out_channels=channels,
            layers_per_block=1,
            norm_num_groups=groups,
            cross_attention_dim=2 * TEXT_WIDTH,
            attention_head_dim=4,
            use_linear_projection=True,
            transformer_layers_per_block=depth,
            addition_embed_type="text_time",
            addition_time_embed_dim=8,
            projection_class_embeddings_input_dim=8 * 6 + TEXT_WIDTH,
        )
    unet = unet.eval().requires_grad_(False)
    return unet if dtype is torch.float32 else unet.to(dtype)


def tiny_inputs(
    *, height: int = 128, width: int = 128, batch: int = 2, dtype: torch.dtype = torch.float32, seed: int = 7
) -> dict[str, Any]:
    """Inputs of a tiny_unet call, all but the timestep: one latent for the whole batch, a text for each half."""
    generator = torch.Generator().manual_seed(seed)
    latent = torch.randn(1, 4, height // 8, width // 8, generator=generator).to(dtype)
    return {
        "sample": latent.repeat(batch, 1, 1, 1),
        "encoder_hidden_states": torch.randn(batch, 77, 2 * TEXT_WIDTH, generator=generator).to(dtype),
        "added_cond_kwargs": {
            "text_embeds": torch.randn(batch, TEXT_WIDTH, generator=generator).to(dtype),
            "time_ids": torch.tensor([[height, width, 0, 0, height, width]] * batch).to(dtype),
        },
    }


def tiny_pipeline(unet: UNet2DConditionModel, folder: Path) -> StableDiffusionXLPipeline:
    """A whole SDXL pipeline around the UNet, with DDIM; its tokenizer (bytes, no merges) is written to the folder."""
    tokenizer = _byte_tokenizer(folder)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        vae = AutoencoderKL(
            block_out_channels=(8, 8, 16, 16),
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            latent_channels=4,
            norm_num_groups=4,
        )
        text = CLIPTextModel(_text_config())
        text_2 = CLIPTextModelWithProjection(_text_config())
    pipeline = StableDiffusionXLPipeline(
        vae=vae.eval(),
        text_encoder=text.eval(),
        text_encoder_2=text_2.eval(),
        tokenizer=tokenizer,
        tokenizer_2=tokenizer,
        unet=unet,
        scheduler=DDIMScheduler(
            beta_start=0.00085,
            beta_end=0.012,
            beta_schedule="scaled_linear",
            clip_sample=False,
            set_alpha_to_one=False,
            steps_offset=1,
        ),
        add_watermarker=False,
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def words(folder: Path) -> tuple[str, ...]:
    """What a user types for a tiny pipeline that was saved to the folder: rules are read from its own files."""
    files = (f"model.source={folder}", "model.architecture=files", "model.variant=null")
    return ("model=sdxl", *files, "model.dtype=float32", "model.block_size=2")


def _text_config() -> CLIPTextConfig:
    return CLIPTextConfig(
        vocab_size=514,
        hidden_size=TEXT_WIDTH,
        intermediate_size=2 * TEXT_WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        projection_dim=TEXT_WIDTH,
        bos_token_id=512,
        eos_token_id=513,
        pad_token_id=513,
    )


def _byte_tokenizer(folder: Path) -> CLIPTokenizer:
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in printable]
    letters = [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(rest))]
    words = letters + [letter + "</w>" for letter in letters] + ["<|startoftext|>", "<|endoftext|>"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return CLIPTokenizer.from_pretrained(folder, model_max_length=77)
