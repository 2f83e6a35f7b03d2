"""What runs would take on other links, and which is fastest there: projections, of which no best and front knows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from otil_exp.links.link import Links
from otil_exp.links.projection import compute_s, step_s
from otil_exp.report.collect import Run
from otil_exp.report.columns import PSNR, STEP_MS
from otil_exp.report.comparable import basis, engine, meaningless
from otil_exp.run_folder.timing import timed_rows

ERROR = 0.08
"""Projections nearer than this are not told apart: the error it is held to (benchmarks/link_projection.md)."""

BOUNDS_DB = range(10, 60, 5)
"""PSNR to the reference, dB, that a table asks for where some runs reach it and others do not."""


@dataclass(frozen=True, kw_only=True)
class Projected:
    """One run on other links."""

    run: Run
    measured_s: float | None = None
    """Seconds a picture as it was measured: of mode=benchmark, else the sum of its steps, without VAE and text."""

    seconds: tuple[float, ...] = ()
    """Projected seconds a picture, one for each of the links; empty where there is a reason."""

    reason: str = ""
    """Why nothing is projected."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Which method is fastest on these links among those that are at least so good."""

    links: Links
    world_size: int
    """GPUs; the reference on one of them takes part."""

    bound_db: float | None
    """Least PSNR to the reference; None: any."""

    fastest: Run
    seconds: float
    second: Run | None
    """The next one."""

    margin: float
    """How many times longer the next one takes; infinite where there is none."""

    @property
    def told_apart(self) -> bool:
        """Whether the projection is good enough to tell the two apart."""
        return self.margin >= 1 + ERROR


def project(runs: Sequence[Run], links: Sequence[Links], measured_on: Links) -> list[Projected]:
    """Every run on every one of the links. measured_on: the links that the runs were made on."""
    return [_projected(run, links, measured_on) for run in runs]


def answers(projected: Sequence[Projected], links: Sequence[Links]) -> list[Answer]:
    """By link, number of GPUs and quality bound, among runs whose times can be compared."""
    groups: dict[tuple[str, ...], list[Projected]] = defaultdict(list)
    for one in projected:
        if one.seconds:
            groups[basis(one.run, STEP_MS.key)].append(one)
    found = []
    for group in groups.values():
        sizes = sorted({_world_size(one.run) for one in group} - {1})
        for index, link in enumerate(links):
            for size in sizes:
                among = [one for one in group if _world_size(one.run) in (1, size)]
                found += [_answer(among, index, link, size, bound) for bound in _bounds(among)]
    return found


def _projected(run: Run, links: Sequence[Links], measured_on: Links) -> Projected:
    rows = timed_rows(run.folder.read_steps(), _warm(run), run.record.get("attempts", ()))
    if run.status != "done" or not rows:
        return Projected(run=run, reason="it is not finished")
    times = {kind: rows.column("ms")[rows.of_kind(kind)] / 1e3 for kind in rows.kinds}
    times = {kind: seconds for kind, seconds in times.items() if len(seconds)}
    pictures = len(np.unique(rows.pictures()))
    of_steps = float(rows.column("ms").sum() / 1e3) / pictures
    measured = run.value("latency/image_s") or of_steps
    if why := meaningless(run, STEP_MS.key):
        return Projected(run=run, measured_s=measured, reason=f"its times mean nothing: {why}")
    messages = run.folder.read_messages()
    if messages is None and _world_size(run) > 1:
        return Projected(
            run=run, measured_s=measured, reason="messages.csv is not there: a version made it that did not count them"
        )
    joined, found = _joined(run), [measured] * len(links)
    for kind, seconds in times.items():
        own = [one for one in messages or () if one.kind == kind]
        step = float(seconds.mean())
        computed = compute_s(step, own, measured_on, joined=joined)
        for index, link in enumerate(links):
            found[index] += len(seconds) / pictures * (step_s(computed, own, link, joined=joined) - step)
        if computed == 0 and own:
            too_long = f"its {kind} messages alone would take longer on {measured_on.name} than its steps took"
            return Projected(run=run, measured_s=measured, reason=f"{too_long}: it was measured on other links")
    return Projected(run=run, measured_s=measured, seconds=tuple(found))


def _answer(among: Sequence[Projected], index: int, links: Links, world_size: int, bound: float | None) -> Answer:
    good = [one for one in among if bound is None or _quality(one.run) >= bound]
    first, *others = sorted(good, key=lambda one: one.seconds[index])
    second = others[0] if others else None
    return Answer(
        links=links,
        world_size=world_size,
        bound_db=bound,
        fastest=first.run,
        seconds=first.seconds[index],
        second=second.run if second else None,
        margin=second.seconds[index] / first.seconds[index] if second else inf,
    )


def _bounds(among: Sequence[Projected]) -> list[float | None]:
    """Any quality, and every bound that changes who takes part."""
    qualities = [_quality(one.run) for one in among]
    taking_part, found = len(among), list[float | None]([None])
    for bound in BOUNDS_DB:
        reach = sum(quality >= bound for quality in qualities)
        if 0 < reach < taking_part:
            found.append(float(bound))
            taking_part = reach
    return found


def _quality(run: Run) -> float:
    """PSNR to the reference, dB: infinite for the reference itself, and none for who was not scored."""
    value = run.value(PSNR.key)
    return inf if run.is_reference else -inf if value is None else value


def _joined(run: Run) -> bool:
    """Whether its steps, and so its text encoders, were replayed as CUDA graphs (otil_exp.rank_unet.engine_choice)."""
    words = engine(run)
    return words == "cuda_graph" or "replayed" in words


def _warm(run: Run) -> bool:
    """Whether untimed pictures ran before, as in otil_exp.run.benchmark."""
    return run.config.get("mode") == "benchmark" and run.config.get("benchmark", {}).get("warmup_images", 0) > 0


def _world_size(run: Run) -> int:
    return int(run.record.get("topology", {}).get("world_size", 1))
