"""The networks of the shapes model, untrained: SDXL's architecture at a fiftieth of its width."""

import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionXLPipeline, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer

TEXT_WIDTH = 64
"""Width of each text encoder; the UNet attends to both side by side."""

TEXT_LAYERS = 3
"""SDXL reads the last layer but one, so one layer is read by the pooled embedding alone."""

PICTURE = 256
"""Side of a picture, in pixels; the latent's side is an eighth of it."""


def build_vae() -> AutoencoderKL:
    """Autoencoder, f8, 4 latent channels, 1.25 M parameters."""
    widths = (32, 64, 64, 64)
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=widths,
        layers_per_block=1,
        norm_num_groups=16,
        latent_channels=4,
        sample_size=PICTURE,
        force_upcast=False,
    )


def build_unet() -> UNet2DConditionModel:
    """UNet of three levels (64, 128, 128), 6.8 M parameters; widths, heads and groups divide by 2 and 4."""
    return UNet2DConditionModel(
        sample_size=PICTURE // 8,
        layers_per_block=1,
        block_out_channels=(64, 128, 128),
        norm_num_groups=16,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        transformer_layers_per_block=1,
        attention_head_dim=(2, 4, 4),  # diffusers' historical name for the number of heads
        use_linear_projection=True,
        cross_attention_dim=2 * TEXT_WIDTH,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=6 * 8 + TEXT_WIDTH,
    )


def build_text_encoders(tokenizer: CLIPTokenizer) -> tuple[CLIPTextModel, CLIPTextModelWithProjection]:
    """Two CLIP text encoders; the second also gives the pooled embedding."""
    config = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=TEXT_WIDTH,
        intermediate_size=4 * TEXT_WIDTH,
        projection_dim=TEXT_WIDTH,
        num_hidden_layers=TEXT_LAYERS,
        num_attention_heads=2,
        max_position_embeddings=tokenizer.model_max_length,
        hidden_act="gelu",
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return CLIPTextModel(config), CLIPTextModelWithProjection(config)


def build_scheduler() -> DDIMScheduler:
    """The noise schedule of training, and the sampler that is saved with the pipeline."""
    return DDIMScheduler(
        num_train_timesteps=1000,
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        prediction_type="epsilon",
        clip_sample=False,
        set_alpha_to_one=False,
        steps_offset=1,
        timestep_spacing="leading",
    )


def assemble(
    vae: AutoencoderKL,
    unet: UNet2DConditionModel,
    text_encoders: tuple[CLIPTextModel, CLIPTextModelWithProjection],
    tokenizer: CLIPTokenizer,
) -> StableDiffusionXLPipeline:
    """Put the parts into diffusers' own SDXL pipeline."""
    pipeline = StableDiffusionXLPipeline(
        vae=vae,
        unet=unet,
        text_encoder=text_encoders[0],
        text_encoder_2=text_encoders[1],
        tokenizer=tokenizer,
        tokenizer_2=tokenizer,
        scheduler=build_scheduler(),
        force_zeros_for_empty_prompt=True,
        add_watermarker=False,
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def time_ids(batch: int, device: torch.device) -> torch.Tensor:
    """Return SDXL's size conditioning (B, 6): original size, crop, target size."""
    return torch.tensor([[PICTURE, PICTURE, 0, 0, PICTURE, PICTURE]], device=device).float().repeat(batch, 1)
