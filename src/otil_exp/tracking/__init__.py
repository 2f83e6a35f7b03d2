"""Runs logged to W&B besides the run folder; what is logged is in docs/tracking.md."""

from otil_exp.tracking.tracker import NoTracker, Tracker, rescored, tracked

__all__ = ["NoTracker", "Tracker", "rescored", "tracked"]
