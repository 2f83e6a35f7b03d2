"""Distances between a run's pictures and another set, with all that changes such a number beside it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otil_exp.metrics.extractors import Extractor
from otil_exp.metrics.frechet import frechet_distance
from otil_exp.metrics.kernel import kernel_distance


@dataclass(frozen=True, kw_only=True, slots=True)
class SetDistance:
    """One distance. Compare it only with distances of the same extractor, backend, resize and numbers of pictures."""

    value: float

    standard_error: float | None
    """None where it is not known: a Frechet distance has a bias that depends on n, not only an error."""

    n: int
    """Pictures of the run."""

    n_reference: int
    """Pictures that they are compared with."""

    size: int
    """Length of a feature vector; a Frechet distance of fewer than about ten times as many pictures is mostly bias."""

    extractor: str
    backend: str
    resize: str


def set_distances(
    features: np.ndarray, reference: np.ndarray, extractor: Extractor, against: str, *, paired: bool
) -> dict[str, SetDistance]:
    """Frechet and kernel distance under their names, such as fid/orig and kid/orig (against="orig" or "gt").

    features (n, size), reference (m, size): both of `extractor`. paired: picture i of both shows the same prompt, as
    the reference run's pictures and renders of the captions do. Raises ValueError for fewer than 2 pictures.
    """
    kernel = kernel_distance(features, reference, paired=paired)
    values: dict[str, tuple[float, float | None]] = {
        f"{extractor.frechet_name}/{against}": (frechet_distance(features, reference), None),
        f"{extractor.kernel_name}/{against}": (kernel.value, kernel.standard_error),
    }
    return {
        name: SetDistance(
            value=value,
            standard_error=error,
            n=len(features),
            n_reference=len(reference),
            size=extractor.size,
            extractor=extractor.name,
            backend=extractor.backend,
            resize=extractor.resize,
        )
        for name, (value, error) in values.items()
    }
