"""The UNet cut by depth, skips local; the inner part computes while the outer one is on its way, and is forecast."""
