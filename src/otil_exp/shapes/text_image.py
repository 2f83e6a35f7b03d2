"""A small text-image similarity for scenes, trained contrastively on renders and captions. It is not CLIP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from otil_exp.shapes import FEATURES, METRICS_FOLDER, PIPELINE_FOLDER
from otil_exp.shapes.classifier import PictureTrunk

if TYPE_CHECKING:  # seconds
    from transformers import CLIPTokenizer

WIDTH = 64
"""Width of the text tower and of the shared space."""


class TextTower(nn.Module):
    """Token ids (B, L) of the shapes tokenizer -> (B, WIDTH): two transformer layers, averaged over the real tokens."""

    def __init__(self, vocabulary: int, length: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, WIDTH)
        self.place = nn.Parameter(torch.randn(length, WIDTH) * 0.02)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(2)
        )
        self.project = nn.Linear(WIDTH, WIDTH)

    def forward(self, ids: Tensor, end: int) -> Tensor:
        """`end`: id of the end token, which also pads."""
        real = (ids == end).cumsum(1) <= 1
        states = self.token(ids) + self.place
        for layer in self.layers:
            states = layer(states, src_key_padding_mask=~real)
        weight = (real & (ids != end)).to(states.dtype)[:, :, None]
        return self.project((states * weight).sum(1) / weight.sum(1).clamp(min=1))


class TextImageModel(nn.Module):
    """Pictures and captions in one space; `similarity` is their cosine."""

    def __init__(self, vocabulary: int, length: int) -> None:
        super().__init__()
        self.picture = PictureTrunk()
        self.picture_project = nn.Linear(FEATURES, WIDTH)
        self.text = TextTower(vocabulary, length)
        self.log_scale = nn.Parameter(torch.tensor(2.3))

    @classmethod
    def load(cls, path: Path = METRICS_FOLDER / "text_image.safetensors") -> TextImageModel:
        """Return the shipped model in float32, in evaluation mode."""
        weights = load_file(path)
        model = cls(vocabulary=len(weights["text.token.weight"]), length=len(weights["text.place"]))
        model.load_state_dict(weights)
        return model.float().eval()

    def embed_pictures(self, pictures: Tensor) -> Tensor:
        """Return unit vectors (B, WIDTH) for pictures (B, 3, H, W) in [0, 1]."""
        return F.normalize(self.picture_project(F.gelu(self.picture(pictures))), dim=-1)

    def embed_ids(self, ids: Tensor, end: int) -> Tensor:
        """Return unit vectors (B, WIDTH) for token ids (B, L)."""
        return F.normalize(self.text(ids, end), dim=-1)

    def embed_captions(self, captions: list[str], tokenizer: CLIPTokenizer) -> Tensor:
        """Return unit vectors (B, WIDTH) for captions; `tokenizer` is the pipeline's."""
        ids = tokenizer(captions, padding="max_length", truncation=True, return_tensors="pt").input_ids
        return self.embed_ids(ids.to(self.log_scale.device), tokenizer.eos_token_id)

    @torch.no_grad()
    def similarity(self, pictures: Tensor, captions: list[str], tokenizer: CLIPTokenizer) -> Tensor:
        """Return the cosine (B,) of each picture with its own caption, in [-1, 1]."""
        return (self.embed_pictures(pictures) * self.embed_captions(captions, tokenizer)).sum(-1)


def load_tokenizer() -> CLIPTokenizer:
    """Return the shipped pipeline's tokenizer."""
    from transformers import CLIPTokenizer

    return CLIPTokenizer.from_pretrained(PIPELINE_FOLDER / "tokenizer")
