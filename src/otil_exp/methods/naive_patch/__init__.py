"""Slices that never talk: each is denoised as a picture of its own (DistriFusion's lower bound)."""
