"""What a slice boundary leaves in a picture, alone and against the reference picture."""

from otil_exp.metrics.seam.boundaries import Boundaries, boundaries
from otil_exp.metrics.seam.measure import seam_metrics

__all__ = ["Boundaries", "boundaries", "seam_metrics"]
