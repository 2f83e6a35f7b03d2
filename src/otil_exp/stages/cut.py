"""Where a UNet may be cut into nested stages, what crosses then, and which cut shares the work out evenly.

A cut is named by the last unit on the way down that stays outside and the last unit of the inner part, such as
down1.down/up0.attn1.4: what runs between them is the inner part. Every skip has to begin and end in one stage; a skip
that is the very tensor at which the UNet is cut is known on both sides. Torch-free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise

from otil_exp.stages.tape import Unit
from otil_exp.stages.wiring import Segment, skip_pairs

NEARLY = 1.02
"""Cuts whose slowest stage is at most this much slower than the best cut's are equal: then what crosses decides."""


@dataclass(frozen=True)
class Cut:
    """Units first..last (indices of the tape, both within) are the inner part."""

    first: int
    last: int

    def name(self, units: Sequence[Unit]) -> str:
        """What a user types: OUTSIDE/INSIDE, the last unit before the inner part and the last one of it."""
        return f"{units[self.first - 1].name}/{units[self.last].name}"

    def holds(self, other: Cut) -> bool:
        """Whether the other's inner part lies within this one's, with work left on the way down and on the way up."""
        return self.first < other.first and other.last < self.last


def legal_cuts(units: tuple[Unit, ...]) -> tuple[Cut, ...]:
    """All cuts that leave every skip on one side, by the units' order."""
    turn = next(i for i, unit in enumerate(units) if unit.name.startswith("mid"))
    pairs = [(first, last) for first in range(1, turn + 1) for last in range(turn, len(units) - 1)]
    return tuple(Cut(first, last) for first, last in pairs if not _astray(units, first, last))


def fold(units: Sequence[Unit], cuts: Sequence[Cut]) -> tuple[Segment, ...]:
    """The segments of nested stages: the ways down from the outermost stage, the innermost part, the ways up again."""
    starts = [0, *(cut.first for cut in cuts), *(cut.last + 1 for cut in reversed(cuts))]
    stops = [*starts[1:], len(units)]
    deepest = len(cuts)
    stages = [*range(deepest), deepest, *reversed(range(deepest))]
    return tuple(Segment(*segment) for segment in zip(starts, stops, stages, strict=True))


def stage_flops(units: Sequence[Unit], segments: Sequence[Segment]) -> list[int]:
    """FLOPs of each stage, for one sample."""
    flops = [0] * (1 + max(segment.stage for segment in segments))
    for segment in segments:
        flops[segment.stage] += sum(unit.flops for unit in units[segment.start : segment.stop])
    return flops


def named_cuts(units: tuple[Unit, ...], names: Sequence[str]) -> tuple[Cut, ...]:
    """The cuts that a user asked for, outermost first. Raises ValueError with the names that exist."""
    cuts = tuple(_named(units, name) for name in names)
    for (outer, inner), (outer_name, inner_name) in zip(pairwise(cuts), pairwise(names), strict=True):
        if not outer.holds(inner):
            raise ValueError(
                f"preset.cut: {inner_name} does not lie within {outer_name}; give the outermost cut first, each one "
                f"within the one before it"
            )
    return cuts


@lru_cache(maxsize=64)
def balanced_cuts(units: tuple[Unit, ...], stages: int, every: int = 1) -> tuple[Cut, ...]:
    """The cuts whose slowest stage has the fewest FLOPs, and of nearly equal ones those that send the least.

    every: the inner stages have so many periods for one latent. Raises ValueError where there are not so many stages.
    """
    legal = legal_cuts(units)
    before = [0]
    for unit in units:
        before.append(before[-1] + unit.flops)
    whole = Cut(0, len(units) - 1)

    def work(outer: Cut, inner: Cut | None) -> float:
        """Of the stage between two cuts, or within the innermost one."""
        held = before[outer.last + 1] - before[outer.first]
        share = held if inner is None else held - (before[inner.last + 1] - before[inner.first])
        return share if outer is whole else share / every

    def search(limit: float) -> tuple[float, int, tuple[Cut, ...]]:
        """(slowest stage, elements that cross, cuts): the least slow, or of those within the limit the least sent."""
        best: dict[Cut, tuple[float, int, tuple[Cut, ...]]] = {cut: (work(cut, None), 0, ()) for cut in legal}
        for depth in range(stages - 1):
            outers = [whole] if depth == stages - 2 else legal
            best = {outer: found for outer in outers if (found := extended(outer, best, limit)) is not None}
        if not best:
            raise ValueError(f"this UNet cannot be cut into {stages} stages that keep their skips")
        return best[whole]

    def extended(
        outer: Cut, best: dict[Cut, tuple[float, int, tuple[Cut, ...]]], limit: float
    ) -> tuple[float, int, tuple[Cut, ...]] | None:
        found = None
        for inner, (slowest, sent, cuts) in best.items():
            if not outer.holds(inner) or (slowest := max(slowest, work(outer, inner))) > limit:
                continue
            sent += units[inner.first - 1].crossing + units[inner.last].crossing
            option = (slowest, sent, (inner, *cuts))
            key = (lambda one: (one[0], one[1])) if limit == float("inf") else (lambda one: (one[1], one[0]))
            found = option if found is None or key(option) < key(found) else found
        return found

    slowest, _, _ = search(float("inf"))
    return search(slowest * NEARLY)[2]


def check_stages(units: tuple[Unit, ...], stages: int) -> None:
    """Raise ValueError, with the numbers that are possible, if the UNet has not so many stages."""
    deepest = _deepest(units)
    if not 2 <= stages <= deepest:
        raise ValueError(
            f"{stages} stages: this UNet can be cut into 2 to {deepest}; choose a topology with so many ranks a half "
            f"of the batch, such as topology=2gpu_nosplit or topology=4gpu_split for two"
        )


def _deepest(units: tuple[Unit, ...]) -> int:
    """Length of the longest chain of nested cuts, plus one."""
    depth: dict[Cut, int] = {}
    for cut in sorted(legal_cuts(units), key=lambda one: one.last - one.first):
        depth[cut] = 1 + max((depth[inner] for inner in depth if cut.holds(inner)), default=0)
    return 1 + max(depth.values(), default=0)


def _named(units: tuple[Unit, ...], name: str) -> Cut:
    index = {unit.name: i for i, unit in enumerate(units)}
    outside, _, inside = name.partition("/")
    legal = legal_cuts(units)
    if outside not in index or inside not in index:
        near = get_close_matches(name, [cut.name(units) for cut in legal], n=3, cutoff=0.0)
        raise ValueError(f"preset.cut={name} does not exist: use OUTSIDE/INSIDE, for example {', '.join(near)}")
    cut = Cut(index[outside] + 1, index[inside])
    if cut in legal:
        return cut
    same = [other.name(units) for other in legal if other.first == cut.first]
    same = same or [other.name(units) for other in legal if other.last == cut.last]
    astray = _astray(units, cut.first, cut.last) if cut.first <= cut.last else []
    because = f"the skip from {units[astray[0]].name} would cross ranks" if astray else "it is no inner part"
    raise ValueError(f"preset.cut={name}: {because}; use {', '.join(same) or legal[0].name(units)}")


def _astray(units: Sequence[Unit], first: int, last: int) -> list[int]:
    """Units whose skip would begin on one side of a cut and end on the other."""
    return [
        pushed
        for pushed, popped in skip_pairs(units)
        if (first <= pushed <= last) != (first <= popped <= last) and pushed != first - 1
    ]
