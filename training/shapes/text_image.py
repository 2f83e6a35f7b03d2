"""Train the small text-image similarity on renders and their captions."""

import torch
import torch.nn.functional as F
from classifier import roughen
from config import Stage
from pace import Pace, adamw, set_lr
from pool import Pool, as_float
from transformers import CLIPTokenizer

from otil_exp.shapes.classifier import attribute_indices
from otil_exp.shapes.text_image import TextImageModel

CHECK = 256
"""Scenes kept for checking: pick the right caption among this many."""


def train_text_image(
    pool: Pool, tokenizer: CLIPTokenizer, stage: Stage, seed: int, device: torch.device, log
) -> TextImageModel:
    """Return a model trained with the symmetric contrastive loss; pairs that say the same scene are not opposed."""
    torch.manual_seed(seed)
    model = TextImageModel(len(tokenizer), pool.ids.shape[-1]).to(device)
    codes = scene_codes(pool, device)
    optimiser = adamw(list(model.parameters()), stage)
    pace = Pace(stage, log)
    for _ in pace:
        set_lr(optimiser, pace.lr())
        rows = torch.randint(max(1, len(pool.scenes) - CHECK), (stage.batch,), device=device)
        loss = contrastive_loss(model, pool, rows, codes[rows], tokenizer.eos_token_id)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    model.eval()
    with torch.no_grad():
        pictures = model.embed_pictures(as_float(pool.pictures[-CHECK:]))
        texts = model.embed_ids(pool.ids[-CHECK:, 0], tokenizer.eos_token_id)
    cosine = pictures @ texts.T
    same = codes[-CHECK:, None] == codes[None, -CHECK:]
    picked = same[torch.arange(len(cosine)), cosine.argmax(1).cpu()].float().mean()
    log(f"text-image steps {pace.step} loss {loss.item():.4f}; right caption of {len(cosine)}: {picked:.3f}, "
        f"cosine matched {cosine[same].mean():.3f} mismatched {cosine[~same].mean():.3f}")  # fmt: skip
    return model


def contrastive_loss(model: TextImageModel, pool: Pool, rows, codes, end: int) -> torch.Tensor:
    """InfoNCE in both directions over the batch `rows` (B,)."""
    wording = torch.randint(pool.ids.shape[1], (len(rows),), device=rows.device)
    pictures = model.embed_pictures(roughen(as_float(pool.pictures[rows])))
    texts = model.embed_ids(pool.ids[rows, wording], end)
    logits = model.log_scale.exp().clamp(max=50) * pictures @ texts.T
    twins = (codes[:, None] == codes[None]) & ~torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    logits = logits.masked_fill(twins, float("-inf"))
    target = torch.arange(len(rows), device=rows.device)
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


def scene_codes(pool: Pool, device: torch.device) -> torch.Tensor:
    """Return one integer (N,) per combination of attributes."""
    code = torch.zeros(len(pool.scenes), dtype=torch.long, device=device)
    for indices in attribute_indices(pool.scenes, device).values():
        code = code * 16 + indices
    return code
