"""Features of a folder of ground truth, kept on disk, so that the runs of a grid extract them once."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import torch

from otil_exp.cache_folder import cache_folder
from otil_exp.metrics.extractors import Extractor
from otil_exp.metrics.ground_truth import FolderPictures, digest
from otil_exp.run_folder.whole import write_whole

log = logging.getLogger(__name__)

READING = 1
"""Counted up when `any_picture` or a resize changes what is read from the same file."""


def cache_file(pictures: FolderPictures, extractor: Extractor) -> Path:
    """Where these features are kept, named by all that they depend on."""
    made_by = [extractor.name, extractor.backend, extractor.resize, extractor.device.type, torch.__version__]
    name = f"{extractor.name}-{digest([pictures.content, made_by, READING])}.npy"
    return cache_folder() / "features" / name


def kept_features(pictures: FolderPictures, extractor: Extractor) -> np.ndarray | None:
    """Features (n, size), float64, of an earlier extraction; None where there are none, or not whole ones."""
    file = cache_file(pictures, extractor)
    try:
        features = np.load(file, allow_pickle=False)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, EOFError) as error:
        log.warning("features are extracted again, %s cannot be read: %s", file, error)
        return None
    return features.astype(np.float64) if features.shape == (len(pictures), extractor.size) else None


def keep_features(pictures: FolderPictures, extractor: Extractor, features: np.ndarray) -> None:
    """Keep them for other runs; where the disk does not let us, say so and go on."""

    def write(path: Path) -> None:
        with path.open("wb") as stream:
            np.save(stream, features.astype(np.float32))  # networks compute in float32: nothing is lost

    try:
        write_whole(cache_file(pictures, extractor), write)
    except OSError as error:
        log.warning("features of %s are not kept for other runs: %s", pictures.folder, error)
