"""Tables, plot and pictures of the ablations' result page, from scored run folders.

    python benchmarks/ablation/tables.py OUT [prompts.limit=1 ...] > tables.md

Also writes OUT/quality_per_byte.png and OUT/flat_field.png.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from statistics import fmean, stdev

import matplotlib
from cells import EXPERIMENTS, Point, points
from PIL import Image, ImageDraw

from otil_exp.run.folder import RunFolder

matplotlib.use("Agg")
from matplotlib import pyplot as plt

FLAT_FIELD = "05"
CONTEXT, LATENT = "otil_context", "otil"
HEAD = (
    *("choice", "PSNR dB", "to distrifusion, dB", f"prompt {FLAT_FIELD}, dB"),
    *("EffNet distance", "seam step, levels", "kB/step", "of distrifusion's"),
)


class Scored:
    """One finished and scored run."""

    def __init__(self, folder: RunFolder) -> None:
        metrics = folder.metrics
        self.images = folder.images
        self.psnr: dict[str, float] = metrics["ref/psnr"]["per_image"]
        self.effnet = metrics["ref/effnet_lite0_5stage"]
        self.seam = metrics["ref/step_levels"]
        self.kilobytes = metrics["traffic/bytes_sent_per_step"]["value"] / 1e3

    @property
    def mean(self) -> float:
        return fmean(self.psnr.values())


def main(out: Path, overrides: list[str]) -> None:
    grid = {name: points(name, f"output_dir={out}", "metrics=none", *overrides) for name in EXPERIMENTS}
    runs = {
        point.cell.folder.path.name: Scored(point.cell.folder)
        for found in grid.values()
        for point in found
        if point.cell.folder.finished and "ref/psnr" in point.cell.folder.metrics
    }
    named = {point.overrides[0]: runs.get(point.cell.folder.path.name) for point in grid["methods"]}
    base = named["preset=distrifusion"]
    assert base is not None, "run and score the methods first"
    for name, found in grid.items():
        print(f"\n### {name}\n\n| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
        for point in found:
            scored = runs.get(point.cell.folder.path.name)
            if scored is not None:
                print(f"| {' | '.join([label(point), *row(scored, base)])} |")
    plot(grid, runs, out / "quality_per_byte.png")
    pictures(grid, runs, out / "flat_field.png")


def label(point: Point) -> str:
    """The choices of a cell without the groups they belong to."""
    return ", ".join(override.removeprefix("preset.").removeprefix("context.") for override in point.overrides)


def row(scored: Scored, base: Scored) -> list[str]:
    change = [value - base.psnr[prompt] for prompt, value in scored.psnr.items()]
    return [
        spread(list(scored.psnr.values())),
        "-" if scored is base else spread(change, signed=True),
        f"{scored.psnr[FLAT_FIELD]:.1f}" if FLAT_FIELD in scored.psnr else "-",
        f"{scored.effnet['value']:.2f}",
        f"{scored.seam['value']:.2f}",
        f"{scored.kilobytes:,.1f}",
        f"{scored.kilobytes / base.kilobytes:.3f}",
    ]


def spread(values: list[float], signed: bool = False) -> str:
    """Mean and its standard error."""
    error = f" ± {stdev(values) / math.sqrt(len(values)):.1f}" if len(values) > 1 else ""
    return f"{fmean(values):{'+' if signed else ''}.1f}{error}"


def plot(grid: dict[str, list[Point]], runs: dict[str, Scored], path: Path) -> None:
    """PSNR against bytes a step: budgets of context and latent as lines, everything else as points."""
    figure, axes = plt.subplots(figsize=(8, 5))
    for preset, colour in ((CONTEXT, "tab:red"), (LATENT, "tab:blue")):
        of_preset = [point for point in grid["budget"] if point.overrides[0] == f"preset={preset}"]
        found = [runs[p.cell.folder.path.name] for p in of_preset if p.cell.folder.path.name in runs]
        axes.plot([r.kilobytes for r in found], [r.mean for r in found], "o-", color=colour, label=f"{preset}, k/K")
    for point in grid["methods"] + grid["codec"] + grid["refresh"]:
        scored = runs.get(point.cell.folder.path.name)
        if scored is None or label(point) in (f"preset={CONTEXT}", f"preset={LATENT}") or "codec=none" in label(point):
            continue
        axes.plot(scored.kilobytes, scored.mean, "kx", markersize=5)
        text = label(point).replace("preset=", "").replace("k.budget=", "k/K=").replace("inf", "1")
        axes.annotate(text, (scored.kilobytes, scored.mean), fontsize=6, xytext=(3, 3), textcoords="offset points")
    axes.set_xscale("log")
    axes.set(xlabel="kB a rank sends a step after warm-up (float32)", ylabel="PSNR to one process, dB")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def pictures(grid: dict[str, list[Point]], runs: dict[str, Scored], path: Path) -> None:
    """The flat-field prompt: one process, methods, budgets of context; below, eight times the difference."""
    chosen = {label(p): p for name in ("methods", "budget") for p in grid[name] if p.overrides[0] != f"preset={LATENT}"}
    reference = next(p for p in grid["methods"] if p.overrides[0] == "preset=reference")
    original = Image.open(reference.cell.folder.images / f"{FLAT_FIELD}.png").convert("RGB")
    shown = {"reference": original} | {
        text.replace("preset=", "").replace("k.budget=", "k/K="): Image.open(
            p.cell.folder.images / f"{FLAT_FIELD}.png"
        ).convert("RGB")
        for text, p in chosen.items()
        if p.cell.folder.path.name in runs
    }
    side = 160
    canvas = Image.new("RGB", (side * len(shown), 2 * side + 14), "white")
    for column, (text, picture) in enumerate(shown.items()):
        ImageDraw.Draw(canvas).text((column * side + 2, 1), text, fill="black")
        canvas.paste(picture.resize((side, side)), (column * side, 14))
        enlarged = [
            tuple(max(0, min(255, 128 + 8 * (a - b))) for a, b in zip(now, then, strict=True))
            for now, then in zip(picture.getdata(), original.getdata(), strict=True)
        ]
        difference = Image.new("RGB", picture.size)
        difference.putdata(enlarged)
        canvas.paste(difference.resize((side, side)), (column * side, 14 + side))
    canvas.save(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
