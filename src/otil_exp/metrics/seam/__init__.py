"""What a slice boundary leaves in a picture, alone and against the reference picture."""

from otil_exp.metrics.seam.boundaries import Boundaries, boundaries
from otil_exp.metrics.seam.measure import PAIRED_UNITS, UNITS, seam_metrics

__all__ = ["PAIRED_UNITS", "UNITS", "Boundaries", "boundaries", "seam_metrics"]
