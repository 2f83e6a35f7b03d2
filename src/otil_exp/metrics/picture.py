"""Everything that is measured on one picture, by itself and beside its reference: the unit that ranks share out."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
import torch

from otil_exp.config import MetricsConfig
from otil_exp.metrics.extractors import INCEPTIONS, Extractor, load_extractor
from otil_exp.metrics.metric import PairScore
from otil_exp.metrics.pairwise import read_picture
from otil_exp.metrics.registry import METRICS
from otil_exp.metrics.seam import Boundaries, seam_metrics
from otil_exp.metrics.text_image import TextImageModel, load_text_image


@dataclass(frozen=True)
class Scorers:
    """The models that the asked metrics need, loaded once."""

    settings: MetricsConfig
    paired: dict[str, PairScore]
    """Scores against the reference picture, by key."""
    extractors: list[Extractor]
    text_image: TextImageModel | None

    @classmethod
    def load(cls, settings: MetricsConfig, device: torch.device | str) -> Self:
        """Load from files that are there; nothing is downloaded.

        Raises FileNotFoundError or ValueError, with what to fetch or type.
        """
        return cls(
            settings=settings,
            paired={m.key: m.load(settings, device) for m in METRICS if m.load is not None and m.wanted(settings)},
            extractors=[
                load_extractor(name, settings.inception_weights if name in INCEPTIONS else None, device)
                for name in settings.extractors
            ],
            text_image=load_text_image(settings.text_image, device) if settings.text_image else None,
        )


@dataclass
class PictureScores:
    """What one picture scored; features are kept for the distances of whole sets."""

    prompt: int
    compared: bool = False
    """Whether there was a reference picture."""
    paired: dict[str, float] = field(default_factory=dict)
    """Scores against the reference picture, by key."""
    seams: dict[str, list[float]] = field(default_factory=dict)
    """One value a boundary for every seam metric."""
    cosine: float | None = None
    """Text-image cosine."""
    truncated: bool = False
    """Whether the caption was longer than the text model reads."""
    features: dict[str, np.ndarray] = field(default_factory=dict)
    """(1, size) by extractor."""
    reference_features: dict[str, np.ndarray] = field(default_factory=dict)


def score_picture(
    scorers: Scorers, prompt: int, caption: str, picture: Path, reference: Path | None, boundaries: Boundaries
) -> PictureScores:
    """Score one picture file; it depends on these arguments alone, to the last bit.

    reference: the reference run's picture of the same prompt, or None: then the paired scores are left out.
    """
    own, other = read_picture(picture), None if reference is None else read_picture(reference)
    scores = PictureScores(prompt, compared=other is not None)
    if other is not None:
        scores.paired = {key: score(own, other) for key, score in scorers.paired.items()}
    if scorers.settings.seams and (boundaries.rows or boundaries.columns):
        scores.seams = seam_metrics(own, boundaries, other)
    for extractor in scorers.extractors:
        scores.features[extractor.name] = extractor([_tensor(own)])
        if other is not None:
            scores.reference_features[extractor.name] = extractor([_tensor(other)])
    if scorers.text_image is not None:
        before = scorers.text_image.truncated
        scores.cosine = scorers.text_image.similarity(_tensor(own), caption)
        scores.truncated = scorers.text_image.truncated > before
    return scores


def _tensor(picture: np.ndarray) -> torch.Tensor:
    """(H, W, 3) float64 -> (3, H, W) float32."""
    return torch.from_numpy(picture).permute(2, 0, 1).float()
