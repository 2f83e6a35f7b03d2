"""Scripts that measure: `python -m benchmarks.NAME` from the root of the repository, NAME a module or folder."""
