"""One training example of the UNet: how noisy, what to predict, how much it counts."""

from dataclasses import dataclass

import torch
from config import Diffusion
from torch import Tensor


@dataclass(kw_only=True, slots=True)
class Examples:
    """A batch of B noised latents."""

    noisy: Tensor
    """(B, 4, 32, 32): what the UNet sees."""

    timesteps: Tensor
    """(B,) int64 in 0..999."""

    target: Tensor
    """(B, 4, 32, 32): the noise to predict."""

    weight: Tensor
    """(B,): weight of the row's squared error."""


def make_examples(latents: Tensor, alpha_bar: Tensor, config: Diffusion) -> Examples:
    """Noise latents (B, 4, 32, 32) of unit variance; alpha_bar (1000,) is the schedule's share of signal power.

    A share `pure_noise` of the rows starts where a sampler starts. There the input is noise without a trace of the
    picture, though the schedule claims sqrt(alpha_bar) = 0.07 to 0.13 of it, and the noise prediction that leads to the
    picture is (input - sqrt(alpha_bar) picture) / sqrt(1 - alpha_bar). These rows are the only ones in which layout
    can be known from the text alone.
    """
    batch, device = len(latents), latents.device
    timesteps = torch.randint(0, 1000, (batch,), device=device)
    late = torch.randint(700, 1000, (batch,), device=device)
    first = torch.randint(850, 1000, (batch,), device=device)
    timesteps = torch.where(torch.rand(batch, device=device) < config.high_noise, late, timesteps)
    starts = torch.rand(batch, device=device) < config.pure_noise
    timesteps = torch.where(starts, first, timesteps)

    signal = alpha_bar[timesteps].sqrt()[:, None, None, None]
    spread = (1 - alpha_bar[timesteps]).sqrt()[:, None, None, None]
    noise = torch.randn_like(latents)
    starts = starts[:, None, None, None]
    snr = (alpha_bar / (1 - alpha_bar))[timesteps]
    return Examples(
        noisy=torch.where(starts, noise, signal * latents + spread * noise),
        timesteps=timesteps,
        target=torch.where(starts, (noise - signal * latents) / spread, noise),
        weight=snr.clamp(max=config.snr_cap) / snr,
    )
