"""Runs laid side by side."""
