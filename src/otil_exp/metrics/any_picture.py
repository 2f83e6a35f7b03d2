"""Pictures of others, in whatever form they were saved: the RGB that a viewer shows, or a sentence."""

from __future__ import annotations

import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

BROKEN = (OSError, EOFError, SyntaxError, ValueError, OverflowError, struct.error, zlib.error)
"""What Pillow's decoders raise on files that are cut or damaged."""

SIXTEEN_BITS = ("I;16", "I;16B", "I;16L", "I;16N")
"""Pillow's modes of 16-bit grey, whose own conversion cuts at 255."""


def check_header(path: Path) -> None:
    """Raise ValueError for a file that `read_rgb` would refuse, as far as its header tells."""
    with _opened(path) as picture:
        if picture.mode == "I":
            _depth_of(path, picture)


def read_rgb(path: Path) -> Image.Image:
    """The picture upright, 8 bits a channel: 16-bit grey and floats in [0, 1] scaled, transparency shown on white.

    Of an animation the first frame. Raises ValueError, naming the file, for one that is no picture, is damaged, has
    floats outside [0, 1] or 32-bit integers, whose white nobody knows, or so many pixels that Pillow refuses it.
    """
    try:
        with _opened(path) as stored:
            picture = ImageOps.exif_transpose(stored)
            picture.load()
            return _as_rgb(path, picture)
    except _Refused:
        raise
    except BROKEN as error:
        raise _Refused(f"{path} is broken ({error}): replace it or take it out") from error


class _Refused(ValueError):
    """A sentence for the user."""


def _opened(path: Path) -> Image.Image:
    try:
        with warnings.catch_warnings():
            # The pictures are the user's own: large is no attack.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            return Image.open(path)
    except Image.DecompressionBombError as error:
        raise _Refused(f"{path} has too many pixels to be read ({error}): make it smaller or take it out") from error
    except UnidentifiedImageError as error:
        raise _Refused(f"{path} is not a picture, whatever its name says: take it out of the folder") from error
    except BROKEN as error:
        raise _Refused(f"{path} is broken ({error}): replace it or take it out") from error


def _as_rgb(path: Path, picture: Image.Image) -> Image.Image:
    if picture.mode in SIXTEEN_BITS or picture.mode in ("I", "F"):
        white = _depth_of(path, picture)
        values = np.asarray(picture, dtype=np.float64) / white
        if not (values.min() >= 0 and values.max() <= 1):
            raise _Refused(
                f"{path} has values from {values.min() * white:g} to {values.max() * white:g}, and white is "
                f"{white:g}: save it with 8 or 16 bits a channel, or as floats in [0, 1]"
            )
        if isinstance(clear := picture.info.get("transparency"), int):  # one grey that is transparent
            values[values == clear / white] = 1
        return Image.fromarray((values * 255).round().astype(np.uint8)).convert("RGB")
    if picture.has_transparency_data:
        shown = picture.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", shown.size, "white"), shown).convert("RGB")
    return picture.convert("RGB")


def _depth_of(path: Path, picture: Image.Image) -> float:
    """The value of white."""
    if picture.mode == "F":
        return 1.0
    if picture.mode == "I" and picture.format != "PNG":
        raise _Refused(f"{path} holds 32-bit integers, whose white nobody knows: save it with 8 or 16 bits a channel")
    return 65535.0
