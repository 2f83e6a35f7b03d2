"""Scores of pictures: pure functions over float arrays."""
