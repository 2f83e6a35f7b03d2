"""AsyncDiff (NeurIPS 2024): the UNet cut into components that all compute at once, on what was sent a step before."""
