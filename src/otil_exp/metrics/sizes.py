"""Numbers and names of scores that tables need, too: here, since a report does not wait for torch."""

PSNR_CAP_DB = 100.0
"""Largest PSNR that enters means, in dB; that of identical pictures is infinite."""

SSIM_WINDOW = 11
"""Side, in pixels, of SSIM's Gaussian window."""

EFFNET_FEATURES = 1280
"""Length of EfficientNet-Lite0's feature vector."""

SHAPES = "shapes_text_image"
"""The text-image model of the shapes that ships."""
