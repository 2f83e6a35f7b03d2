"""Train the autoencoder on renders."""

import torch
import torch.nn.functional as F
from architecture import PICTURE, build_vae
from config import Stage
from diffusers import AutoencoderKL
from pace import Pace, adamw, set_lr
from pool import Pool, as_float, encode
from torch import Tensor

from otil_exp.shapes.scenes import POSITIONS

KL_WEIGHT = 3e-8
"""Weight of the KL divergence, summed over 1024 latent positions, against the mean squared error of a picture."""

CROP = 128
"""Side, in pixels, of the crops around the shape that three of four steps train on; the others see whole pictures."""


def train_vae(pool: Pool, stage: Stage, seed: int, device: torch.device, log) -> AutoencoderKL:
    """Return a trained autoencoder whose scaling factor gives latents of unit standard deviation."""
    torch.manual_seed(seed)
    vae = build_vae().to(device, memory_format=torch.channels_last)
    optimiser = adamw(list(vae.parameters()), stage)
    centres = shape_centres(pool, device)
    pace = Pace(stage, log)
    for step in pace:
        set_lr(optimiser, pace.lr())
        if step % 4 == 3:
            pictures = pool.pictures[torch.randint(len(pool.scenes), (stage.batch // 4,), device=device)]
        else:
            pictures = crops(pool, centres, torch.randint(len(pool.scenes), (stage.batch,), device=device))
        loss = vae_loss(vae, as_float(pictures) * 2 - 1)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(vae.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        if step % 500 == 0:
            log(f"vae step {step} loss {loss.item():.5f}")
    vae.eval()
    latents = encode(vae, pool.pictures[:1024])
    vae.register_to_config(scaling_factor=round(1 / latents.std().item(), 5))
    log(f"vae steps {pace.step}, PSNR {reconstruction_psnr(vae, pool):.1f} dB over 128 renders, "
        f"scaling factor {vae.config.scaling_factor}")  # fmt: skip
    return vae


def vae_loss(vae: AutoencoderKL, pictures: Tensor) -> Tensor:
    """Squared and absolute error of pictures (B, 3, H, W) in [-1, 1], plus a light KL."""
    pictures = pictures.contiguous(memory_format=torch.channels_last)
    with torch.autocast(pictures.device.type, torch.bfloat16, enabled=pictures.is_cuda):
        posterior = vae.encode(pictures).latent_dist
        drawn = vae.decode(posterior.sample()).sample.float()
    divergence = posterior.kl().float().mean() * (PICTURE**2 / pictures[0, 0].numel())
    return F.mse_loss(drawn, pictures) + 0.1 * F.l1_loss(drawn, pictures) + KL_WEIGHT * divergence


def shape_centres(pool: Pool, device: torch.device) -> Tensor:
    """Return the (x, y) of each scene's shape, in pixels: (N, 2) int64."""
    centres = [(POSITIONS[scene.position] + scene.dx, scene.dy) for scene in pool.scenes]
    return ((torch.tensor(centres, device=device) + 1) * (PICTURE / 2)).long()


def crops(pool: Pool, centres: Tensor, rows: Tensor) -> Tensor:
    """Cut a CROP x CROP piece around each shape, up to a quarter of CROP off its centre: (B, 3, CROP, CROP) uint8."""
    shift = torch.randint(-CROP // 4, CROP // 4 + 1, (len(rows), 2), device=rows.device)
    corner = (centres[rows] + shift - CROP // 2).clamp(0, PICTURE - CROP)
    span = torch.arange(CROP, device=rows.device)
    x, y = corner[:, :1] + span, corner[:, 1:] + span
    return pool.pictures[rows[:, None, None], :, y[:, :, None], x[:, None, :]].permute(0, 3, 1, 2)


@torch.no_grad()
def reconstruction_psnr(vae: AutoencoderKL, pool: Pool) -> float:
    """Mean PSNR in dB (peak 1) of the first 128 renders after encoding and decoding."""
    pictures = as_float(pool.pictures[:128])
    drawn = torch.cat([vae.decode(z).sample for z in encode(vae, pool.pictures[:128]).split(32)])
    error = (drawn.clamp(-1, 1) / 2 + 0.5 - pictures).square().mean((1, 2, 3))
    return (-10 * error.log10()).mean().item()
