"""Experiments with distributed SDXL inference: OTIL, DistriFusion and their relatives over the same prompts."""

__version__ = "0.2.0"
