"""What is drawn for the eye: where slices meet, and what differs from the reference."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

from otil_exp.metrics.seam import Boundaries
from otil_exp.metrics.seam.profiles import steps

AMPLIFIED = 4
"""Times a difference is made stronger: a few levels would be invisible."""

DASH, PERIOD = 4, 16
"""Pixels of a dash, and from dash to dash: a whole line would cover the seam it shows."""

COLOUR = (255, 0, 255)


def marked(picture: Image.Image, seams: Boundaries) -> Image.Image:
    """The picture with dashes on the last row (column) before every seam."""
    drawn = picture.convert("RGB")
    pen = ImageDraw.Draw(drawn)
    for y in seams.rows:
        for x in range(0, drawn.width, PERIOD):
            pen.line((x, y - 1, x + DASH - 1, y - 1), COLOUR)
    for x in seams.columns:
        for y in range(0, drawn.height, PERIOD):
            pen.line((x - 1, y, x - 1, y + DASH - 1), COLOUR)
    return drawn


def difference(picture: Image.Image, reference: Image.Image) -> Image.Image:
    """AMPLIFIED x |picture - reference|, per channel, clipped."""
    apart = np.abs(np.asarray(picture, np.int16) - np.asarray(reference, np.int16))
    return Image.fromarray((AMPLIFIED * apart).clip(0, 255).astype(np.uint8))


def seam_profiles(picture: Image.Image, reference: Image.Image | None, columns: bool) -> dict[str, list[float | None]]:
    """S[y] of every row (or column) in levels (metrics.seam.profiles.steps): picture, reference, difference.

    None where the statistic is not defined: at the margins.
    """
    levels = {"picture": np.asarray(picture, np.float64)}
    if reference is not None:
        levels["reference"] = np.asarray(reference, np.float64)
        levels["difference"] = levels["picture"] - levels["reference"]
    turned = {name: x.transpose(1, 0, 2) if columns else x for name, x in levels.items()}
    return {name: [float(v) if np.isfinite(v) else None for v in steps(x)] for name, x in turned.items()}
