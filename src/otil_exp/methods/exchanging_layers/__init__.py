"""Slices of rows whose layers exchange context in every step: full_sync, and DistriFusion's ways of being late."""
