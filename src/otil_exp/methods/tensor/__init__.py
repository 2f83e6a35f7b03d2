"""Tensor parallelism: every layer split over the ranks, its partial sums added up at once or a step late."""
