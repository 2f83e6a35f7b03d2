"""Slices of rows that send the layer context of a few blocks after each step: OTIL as the CVPR 2026 paper reads."""
