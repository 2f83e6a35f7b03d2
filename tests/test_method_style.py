"""Colours of methods, seen as people with each colour-vision deficiency see them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from otil_exp.method_style import COLOURS, IN_ORDER, NEUTRAL, style_of

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
SEEN = {
    "none": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
TO_XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]


def linear(colour: str) -> np.ndarray:
    """sRGB to linear RGB (IEC 61966-2-1)."""
    coded = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIELAB of linear RGB, D65."""
    xyz = np.array(TO_XYZ) @ rgb / np.array([0.95047, 1, 1.08883])
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", SEEN)
def test_all_colours_are_told_apart(vision: str) -> None:
    """A difference of 2.3 is just noticeable; Tableau's ten come down to 0.9 without green cones."""
    seen = [lab(np.clip(np.array(SEEN[vision]) @ linear(colour), 0, 1)) for colour in (*COLOURS, NEUTRAL)]
    assert min(float(np.linalg.norm(one - other)) for one, other in combinations(seen, 2)) > 10


def test_colours_stand_out_from_a_light_and_a_dark_page() -> None:
    for paper in ("#ffffff", "#15191e"):
        for colour in COLOURS:
            light, dark = sorted((linear(c) @ np.array(TO_XYZ[1]) for c in (colour, paper)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) > 2, (colour, paper)


def test_presets_differ_in_colour_or_marker_and_a_method_s_style_is_its_own() -> None:
    assert len({style_of(method) for method in IN_ORDER}) == len(IN_ORDER)
    assert style_of("otil") == style_of("otil") != style_of("otil", is_reference=True)
    assert style_of("my_own").colour in COLOURS
