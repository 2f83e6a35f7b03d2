"""One run: its pictures or timings, its folder, its scores."""
