"""Slices of rows whose layers are silent after warm-up: OTIL as its implementation guide has it, and what surrounds it.

That guide is an unpublished note that this project began with; docs/methods.md retells what it asks for.
"""
