"""Slices of rows whose layers are silent after warm-up: OTIL as the guide has it, and what surrounds it.

The guide is the description of OTIL's exchange that this project began with; docs/methods.md retells it.
"""
