"""Captioned scenes: one shape on one background, as words and as a picture.

This module is the ground truth of the `shapes` model: it draws its training pictures, writes its captions, and tells
what a caption asks for. Everything is a pure function of its arguments; randomness comes from the caller's `Random`.
"""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from random import Random
from typing import Any

import torch
from torch import Tensor

SHAPES = ("circle", "square", "triangle", "star", "ring", "vase")

COLOURS = {
    "terracotta": (176, 106, 82),
    "red": (212, 40, 38),
    "orange": (242, 140, 28),
    "yellow": (240, 214, 60),
    "green": (46, 156, 68),
    "blue": (40, 82, 204),
    "purple": (132, 58, 164),
    "white": (244, 244, 244),
    "black": (26, 26, 30),
}
"""Name -> 8-bit RGB. The first is the colour of a shape whose caption names none."""

SIZES = {"small": 0.20, "medium": 0.29, "large": 0.39}
"""Name -> radius, in half picture widths. A caption that names no size means medium."""

POSITIONS = {"left": -0.5, "middle": 0.0, "right": 0.5}
"""Name -> horizontal centre, in half picture widths from the middle. A caption that names none means middle."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Background:
    """What stands behind the shape: a vertical gradient, or two fields that meet at a horizon."""

    top: tuple[int, int, int]
    """8-bit RGB of the first row."""

    bottom: tuple[int, int, int]
    """8-bit RGB of the last row; equal to `top` for a flat field."""

    horizon: bool = False
    """True: a soft transition at 58 % of the height instead of an even gradient."""

    wordings: tuple[str, ...]
    """Noun phrases that name it; no wording is contained in another background's."""

    prepositions: tuple[str, ...] = ("against", "in front of")


BACKGROUNDS = {
    "pale grey": Background(
        top=(206, 206, 206),
        bottom=(206, 206, 206),
        wordings=(
            "a seamless pale grey background",
            "a plain pale grey background",
            "a pale grey background",
            "a pale grey studio backdrop",
            "a flat pale grey field",
            "pale grey seamless paper",
        ),
        prepositions=("on", "on", "against", "in front of"),
    ),
    "grey": Background(
        top=(128, 128, 128),
        bottom=(128, 128, 128),
        wordings=(
            "a seamless mid grey background",
            "a plain grey background",
            "a grey background",
            "a mid grey studio backdrop",
            "a flat grey field",
            "a flat grey wall",
        ),
        prepositions=("on", "on", "against", "in front of"),
    ),
    "sky": Background(
        top=(78, 140, 220),
        bottom=(214, 232, 244),
        wordings=("a clear blue sky", "a blue sky", "a bright daytime sky", "a sky gradient"),
    ),
    "sunset": Background(
        top=(72, 50, 112),
        bottom=(244, 152, 88),
        wordings=("a sunset sky", "a glowing sunset", "an evening sky at sunset", "a sunset gradient"),
    ),
    "night": Background(
        top=(16, 22, 60),
        bottom=(62, 74, 124),
        wordings=("a night sky", "a dark blue night sky", "a night gradient"),
    ),
    "meadow": Background(
        top=(196, 222, 238),
        bottom=(86, 148, 62),
        horizon=True,
        wordings=("a green meadow", "a meadow under a pale sky", "a grassy meadow", "a meadow gradient"),
        prepositions=("against", "in front of", "over"),
    ),
    "sea": Background(
        top=(208, 226, 240),
        bottom=(30, 96, 132),
        horizon=True,
        wordings=("a calm sea", "a calm sea under a bright sky", "the open sea", "a sea gradient"),
        prepositions=("against", "in front of", "over"),
    ),
    "desert": Background(
        top=(248, 226, 184),
        bottom=(206, 164, 104),
        horizon=True,
        wordings=("a sandy desert", "a desert under a warm sky", "desert dunes", "a desert gradient"),
        prepositions=("against", "in front of", "over"),
    ),
}
"""Name -> background. The first is the background of a caption that names none, and the seam probe's flat field."""

VOCABULARY: dict[str, tuple[str, ...]] = {
    "shape": SHAPES,
    "colour": tuple(COLOURS),
    "size": tuple(SIZES),
    "position": tuple(POSITIONS),
    "background": tuple(BACKGROUNDS),
}
"""Attribute -> its values, in the order of the classifier's outputs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """What a caption can say (five attributes) and what it leaves open (jitter)."""

    shape: str
    colour: str = "terracotta"
    size: str = "medium"
    position: str = "middle"
    background: str = "pale grey"

    dx: float = 0.0
    """Horizontal jitter of the centre, in half picture widths; drawn from +-0.07."""

    dy: float = 0.0
    """Vertical jitter of the centre, in half picture heights, positive downwards; drawn from +-0.12."""

    stretch: float = 1.0
    """Factor on the radius; drawn from 0.94..1.06."""

    def __post_init__(self) -> None:
        for attribute, values in VOCABULARY.items():
            if getattr(self, attribute) not in values:
                raise ValueError(f"{attribute}={getattr(self, attribute)!r}: use one of {', '.join(values)}")


def is_held_out(scene: Scene) -> bool:
    """Tell whether this combination of the five attributes (one in ten) is kept out of training."""
    named = "|".join(getattr(scene, attribute) for attribute in VOCABULARY)
    return zlib.crc32(named.encode()) % 10 == 0


def jitter(scene: Scene, random: Random) -> Scene:
    """Return the scene with what its caption leaves open drawn afresh."""
    return replace(
        scene,
        dx=random.uniform(-0.07, 0.07),
        dy=random.uniform(-0.12, 0.12),
        stretch=random.uniform(0.94, 1.06),
    )


def sample_scene(random: Random, *, held_out: bool = False) -> Scene:
    """Draw a scene uniformly from the training combinations, or from the held-out ones."""
    while True:
        drawn: dict[str, Any] = {attribute: random.choice(values) for attribute, values in VOCABULARY.items()}
        scene = Scene(**drawn)
        if is_held_out(scene) == held_out:
            return jitter(scene, random)


def held_out_scenes() -> list[Scene]:
    """List every held-out combination, without jitter, in vocabulary order."""
    combinations: list[dict[str, Any]] = [
        dict(zip(VOCABULARY, values, strict=True)) for values in product(*VOCABULARY.values())
    ]
    return [scene for scene in (Scene(**named) for named in combinations) if is_held_out(scene)]


POSITION_WORDINGS = {
    "left": ("on the left", "on the left", "on the left side", "at the left"),
    "middle": ("", "", "in the middle", "in the centre"),
    "right": ("on the right", "on the right", "on the right side", "at the right"),
}

TEMPLATES = (
    "{noun} {position} {place}",
    "{noun} {place}, {position}",
    "{noun} {position}, {place}",
    "{position}, {noun} {place}",
    "{background} with {noun} {position}",
)

TEMPLATES_WITH_POSITION = (*TEMPLATES, "{noun} {position} of {background}", "{noun} {position} of {background}")
"""Wordings for a caption that names its position."""

OPENINGS = ("a picture of ", "a photo of ", "a drawing of ")


def caption(scene: Scene, random: Random) -> str:
    """Say the scene in one of the grammar's wordings; `parse` gives the five attributes back."""
    size = "" if scene.size == "medium" and random.random() < 0.6 else scene.size
    colour = "" if scene.colour == "terracotta" and random.random() < 0.5 else scene.colour
    noun = with_article(" ".join(word for word in (size, colour, scene.shape) if word))
    background = BACKGROUNDS[scene.background]
    wording = random.choice(background.wordings)
    position = random.choice(POSITION_WORDINGS[scene.position])
    text = random.choice(TEMPLATES_WITH_POSITION if position else TEMPLATES).format(
        noun=noun,
        position=position,
        place=f"{random.choice(background.prepositions)} {wording}",
        background=wording,
    )
    if scene.background == "pale grey" and random.random() < 0.1:
        text = f"{noun} {position}"
    if text.startswith("a") and random.random() < 0.1:
        text = random.choice(OPENINGS) + text
    if random.random() < 0.1:
        text = text.replace("grey", "gray").replace("centre", "center")
    return " ".join(text.split()).replace(" ,", ",").strip(", ")


def held_out_captions(count: int, random: Random) -> list[str]:
    """Return captions of combinations that the shapes model was not trained on."""
    return [caption(sample_scene(random, held_out=True), random) for _ in range(count)]


def with_article(noun: str) -> str:
    """Put "a" or "an" before a noun phrase."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def parse(text: str) -> Scene:
    """Read a caption into the scene it asks for; what it leaves out takes the default, jitter is zero."""
    words = text.lower().replace("gray", "grey").replace("center", "centre")
    wordings = {wording: name for name, background in BACKGROUNDS.items() for wording in background.wordings}
    said = max((wording for wording in wordings if without_article(wording) in words), key=len, default=None)
    rest = words.replace(without_article(said), " ") if said else words
    named: dict[str, Any] = {"background": wordings[said]} if said else {}
    tokens = rest.replace(",", " ").replace(".", " ").split()
    for attribute in ("shape", "colour", "size", "position"):
        found = [word for word in tokens if word in VOCABULARY[attribute]]
        if found:
            named[attribute] = found[0]
    if "shape" not in named:
        raise ValueError(f"{text!r} names no shape: use one of {', '.join(SHAPES)}")
    return Scene(**named)


def without_article(noun: str) -> str:
    """Drop the leading article of a noun phrase."""
    return noun.removeprefix("a ").removeprefix("an ").removeprefix("the ")


def render(scenes: Sequence[Scene], size: int = 256, device: torch.device | str = "cpu") -> Tensor:
    """Draw scenes. Returns (B, 3, size, size) float32 in [0, 1]; edges are smooth over about one pixel."""
    axis = (torch.arange(size, device=device) + 0.5) * (2 / size) - 1
    radius = column([SIZES[s.size] * s.stretch for s in scenes], device)
    x = (axis[None, None, :] - column([POSITIONS[s.position] + s.dx for s in scenes], device)) / radius
    y = (axis[None, :, None] - column([s.dy for s in scenes], device)) / radius
    inside = signed_distance(scenes, x, y) * radius * (size / 2)

    outline_width = 0.05 * radius * (size / 2)
    cover = torch.sigmoid(4 * inside)[:, None]
    fill = torch.sigmoid(4 * (inside - outline_width))[:, None]
    colour = rgb([COLOURS[s.colour] for s in scenes], device)
    outline = rgb([outline_colour(s.colour) for s in scenes], device)
    light = (1 - 0.10 * x - 0.10 * y).clamp(0.8, 1.2)[:, None]
    shape = outline + (colour * light - outline) * fill
    behind = draw_backgrounds([BACKGROUNDS[s.background] for s in scenes], axis)
    return (behind + (shape - behind) * cover).clamp(0, 1)


def draw_backgrounds(backgrounds: Sequence[Background], axis: Tensor) -> Tensor:
    """Draw backgrounds over rows at heights axis (S,) in [-1, 1]. Returns (B, 3, S, 1) in [0, 1]."""
    even = (axis * 0.5 + 0.5)[None, :]
    horizon = torch.sigmoid((axis - 0.16) * 24)[None, :]
    has_horizon = torch.tensor([b.horizon for b in backgrounds], device=axis.device)[:, None]
    weight = torch.where(has_horizon, horizon, even)[:, None, :, None]
    top = rgb([b.top for b in backgrounds], axis.device)
    bottom = rgb([b.bottom for b in backgrounds], axis.device)
    return top + (bottom - top) * weight


def outline_colour(name: str) -> tuple[float, float, float]:
    """Return the 8-bit RGB of a shape's rim: darker than the shape, but grey around black."""
    if name == "black":
        return (96, 96, 100)
    red, green, blue = COLOURS[name]
    return (0.55 * red, 0.55 * green, 0.55 * blue)


def column(values: Sequence[float], device: torch.device | str) -> Tensor:
    """Return (B, 1, 1) float32."""
    return torch.tensor(values, dtype=torch.float32, device=device)[:, None, None]


def rgb(values: Sequence[tuple[float, float, float]], device: torch.device | str) -> Tensor:
    """Return (B, 3, 1, 1) float32 in [0, 1] from 8-bit values."""
    return torch.tensor(values, dtype=torch.float32, device=device)[:, :, None, None] / 255


def signed_distance(scenes: Sequence[Scene], x: Tensor, y: Tensor) -> Tensor:
    """Return each scene's distance to its shape's edge, positive inside, in radii.

    x (B, 1, S), y (B, S, 1): position relative to the shape's centre, in radii, y downwards. Returns (B, S, S).
    """
    kinds = torch.tensor([SHAPES.index(s.shape) for s in scenes], device=x.device)
    distance = (x + y) * 0
    for index, shape in enumerate(SHAPES):
        chosen = kinds == index
        distance[chosen] = DISTANCES[shape](x[chosen], y[chosen])
    return distance


def circle_distance(x: Tensor, y: Tensor) -> Tensor:
    """Disc of radius 1."""
    return 1 - torch.hypot(x, y)


def square_distance(x: Tensor, y: Tensor) -> Tensor:
    """Square of half side 0.86."""
    return 0.86 - torch.maximum(x.abs(), y.abs())


def triangle_distance(x: Tensor, y: Tensor) -> Tensor:
    """Upright triangle: apex (0, -1), base at y = 0.75, half base 1."""
    slope = 1 / 1.75
    side = ((y + 1) * slope - x.abs()) / math.hypot(1, slope)
    return torch.minimum(0.75 - y, side)


def star_distance(x: Tensor, y: Tensor) -> Tensor:
    """Five-pointed star: a tip up, outer radius 1.1, inner radius 0.48 (folded into one tenth of the turn)."""
    outer, inner, tenth = 1.1, 0.48, math.pi / 5
    r = torch.hypot(x, y)
    angle = torch.atan2(x, -y)
    folded = (torch.remainder(angle + tenth, 2 * tenth) - tenth).abs()
    edge_x, edge_y = inner * math.cos(tenth) - outer, inner * math.sin(tenth)
    along, across = r * torch.cos(folded) - outer, r * torch.sin(folded)
    return (edge_x * across - edge_y * along) / math.hypot(edge_x, edge_y)


def ring_distance(x: Tensor, y: Tensor) -> Tensor:
    """Ring of outer radius 1 and inner radius 0.52."""
    return 0.24 - (torch.hypot(x, y) - 0.76).abs()


VASE_PROFILE = ((-1.0, 0.46), (-0.6, 0.22), (0.25, 0.68), (1.0, 0.34))
"""(height, half width) of lip, neck, belly and foot, in radii."""


def vase_distance(x: Tensor, y: Tensor) -> Tensor:
    """Vase: lip, neck, belly and foot joined by half cosine waves."""
    width = torch.full_like(y, VASE_PROFILE[0][1])
    for (y0, w0), (y1, w1) in pairwise(VASE_PROFILE):
        blend = 0.5 - 0.5 * torch.cos(math.pi * ((y - y0) / (y1 - y0)).clamp(0, 1))
        width = torch.where(y >= y0, w0 + (w1 - w0) * blend, width)
    return torch.minimum(width - x.abs(), 1 - y.abs())


DISTANCES = {
    "circle": circle_distance,
    "square": square_distance,
    "triangle": triangle_distance,
    "star": star_distance,
    "ring": ring_distance,
    "vase": vase_distance,
}
