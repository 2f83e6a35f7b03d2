"""Train the UNet and both text encoders together, as one denoiser of captioned latents."""

import copy
from collections.abc import Callable

import torch
from architecture import build_scheduler, time_ids
from config import Diffusion, Stage
from diffusers import UNet2DConditionModel
from diffusion import make_examples
from pace import Pace, adamw, set_lr
from torch import Tensor, nn


class Denoiser(nn.Module):
    """UNet and text encoders: (noisy latents, timesteps, token ids, which rows keep their text) -> predicted noise."""

    def __init__(self, unet: UNet2DConditionModel, text_encoders: tuple[nn.Module, nn.Module]) -> None:
        super().__init__()
        self.unet = unet
        self.text_encoders = nn.ModuleList(text_encoders)

    def embed(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return what SDXL conditions on: (B, L, 128) of both encoders' last layer but one, (B, 64) pooled."""
        first, second = (encoder(ids, output_hidden_states=True) for encoder in self.text_encoders)
        return torch.cat([first.hidden_states[-2], second.hidden_states[-2]], -1), second.text_embeds

    def forward(self, noisy: Tensor, timesteps: Tensor, ids: Tensor, keep: Tensor) -> Tensor:
        states, pooled = self.embed(ids)
        keep = keep.to(states.dtype)
        added = {"text_embeds": pooled * keep[:, None], "time_ids": time_ids(len(ids), ids.device)}
        states = states * keep[:, None, None]
        return self.unet(noisy, timesteps, states, added_cond_kwargs=added, return_dict=False)[0]


def train_unet(
    denoiser: Denoiser,
    latents: Tensor,
    ids: Tensor,
    stage: Stage,
    config: Diffusion,
    *,
    seed: int,
    probe_at: Callable[[int], bool],
    probe: Callable[[Denoiser, int], None],
    log,
    stop: int | None = None,
) -> tuple[Denoiser, int]:
    """Train `denoiser` in place on latents (N, 4, 32, 32) of unit variance and ids (N, wordings, L).

    Returns the averaged copy and the number of steps of the schedule, which `stop` cuts short;
    `probe(averaged, step)` is called after the steps that `probe_at` names.
    """
    torch.manual_seed(seed)
    device = latents.device
    averaged = copy.deepcopy(denoiser).eval().requires_grad_(False)
    optimiser = adamw(list(denoiser.parameters()), stage)
    alpha_bar = build_scheduler().alphas_cumprod.to(device)
    pace, running = Pace(stage, log), torch.zeros((), device=device)
    for step in pace:
        if step == stop:
            break
        set_lr(optimiser, pace.lr())
        rows = torch.randint(len(latents), (stage.batch,), device=device)
        wording = torch.randint(ids.shape[1], (stage.batch,), device=device)
        loss = denoising_loss(denoiser, latents[rows], ids[rows, wording], alpha_bar, config)
        loss.backward()
        nn.utils.clip_grad_norm_(denoiser.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        average(averaged, denoiser, min(config.ema, (step + 1) / (step + 10)))
        running = torch.lerp(running, loss.detach(), max(0.01, 1 / (step + 1)))
        if step % 500 == 0:
            log(f"unet step {step} loss {running.item():.5f}")
        if probe_at(step + 1):
            probe(averaged, step + 1)
    log(f"unet steps {pace.step} of batch {stage.batch}, loss {running.item():.5f}")
    return averaged, pace.total


def denoising_loss(denoiser: Denoiser, latents: Tensor, ids: Tensor, alpha_bar: Tensor, config: Diffusion) -> Tensor:
    """Weighted squared error of the predicted noise over a batch."""
    examples = make_examples(latents, alpha_bar, config)
    keep = torch.rand(len(latents), device=latents.device) >= config.drop_text
    noisy = examples.noisy.contiguous(memory_format=torch.channels_last)
    with torch.autocast(latents.device.type, torch.bfloat16, enabled=latents.is_cuda):
        predicted = denoiser(noisy, examples.timesteps, ids, keep)
    error = (predicted.float() - examples.target).square().mean((1, 2, 3))
    return (error * examples.weight).mean()


@torch.no_grad()
def average(averaged: nn.Module, current: nn.Module, decay: float) -> None:
    """Move the averaged weights towards the current ones."""
    torch._foreach_lerp_(list(averaged.parameters()), list(current.parameters()), 1 - decay)
