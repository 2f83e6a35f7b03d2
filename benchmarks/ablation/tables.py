"""Tables, plot and pictures of the ablations' result page, from scored run folders.

    python -m benchmarks.ablation.tables OUT [--or prompts.shard=1/4] > tables.md

A cell that was not run as its experiment says is taken as the overrides after --or say, if that was run; a table then
compares the prompts that all of its rows have. Also writes OUT/quality_per_byte.png and OUT/flat_field.png.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from statistics import fmean, stdev

import matplotlib
from PIL import Image, ImageDraw

from benchmarks.experiments import Point, points
from otil_exp.run_folder.folder import RunFolder

matplotlib.use("Agg")
from matplotlib import pyplot as plt

EXPERIMENTS = (
    *("methods", "budget", "halos", "every", "codec", "score", "overlap"),
    *("tensor", "refresh", "block_size", "polling", "warmup"),
)
"""Of conf/experiment/ablation, in the order in which they matter."""

FLAT_FIELD = "05"
CONTEXT, LATENT = "otil_context", "otil"
EXACT = ("preset=tensor",)
"""One process but for rounding: far above the plot."""
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
        self.effnet: dict[str, float] = metrics["ref/effnet_lite0_5stage"]["per_image"]
        self.seam: dict[str, list[float]] = metrics.get("ref/step_levels", {}).get("per_image", {})
        self.kilobytes = metrics["traffic/bytes_sent_per_step"]["value"] / 1e3


Runs = dict[str, Scored]
"""Scored runs of an experiment by what it varies."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--or", dest="instead", nargs="*", default=[])
    options = parser.parse_args()
    grid = {name: scored(name, options.out, options.instead) for name in EXPERIMENTS}
    base = grid["methods"]["preset=distrifusion"]
    for name, runs in grid.items():
        if runs:
            print("\n".join(table(name, runs, base)))
    plot(grid, options.out / "quality_per_byte.png")
    pictures(grid, options.out / "flat_field.png")


def scored(experiment: str, out: Path, instead: list[str]) -> Runs:
    """What was run and scored of an experiment."""
    where = (f"output_dir={out}", "metrics=none")
    name = f"ablation/{experiment}"
    choices = [points(name, *where), points(name, *where, *instead)]
    found: Runs = {}
    for several in zip(*choices, strict=True):
        for point in several:
            folder = point.cell.folder
            if folder.finished and "ref/psnr" in folder.metrics:  # which the reference itself has not
                found.setdefault(name_of(point), Scored(folder))
    return found


def name_of(point: Point) -> str:
    """The choices of a cell without the groups they belong to."""
    return ", ".join(override.removeprefix("preset.").removeprefix("context.") for override in point.overrides)


def table(name: str, runs: Runs, base: Scored) -> list[str]:
    """A Markdown table over the prompts that all rows have."""
    prompts = sorted(set(base.psnr).intersection(*(run.psnr for run in runs.values())))
    lines = [f"\n### {name}\n", f"Prompts {', '.join(prompts)}.\n", f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    for text, run in runs.items():
        change = [run.psnr[prompt] - base.psnr[prompt] for prompt in prompts]
        steps = [step for prompt in prompts for step in run.seam.get(prompt, [])]
        row = [
            *(text, spread([run.psnr[prompt] for prompt in prompts])),
            "-" if run.images == base.images else spread(change, signed=True),
            f"{run.psnr[FLAT_FIELD]:.1f}" if FLAT_FIELD in prompts else "-",
            f"{fmean(run.effnet[prompt] for prompt in prompts):.2f}",
            f"{fmean(steps):.2f}" if steps else "-",
            *(f"{run.kilobytes:,.1f}", f"{run.kilobytes / base.kilobytes:.3f}"),
        ]
        lines.append(f"| {' | '.join(row)} |")
    return lines


def spread(values: list[float], signed: bool = False) -> str:
    """Mean and its standard error."""
    error = f" ± {stdev(values) / math.sqrt(len(values)):.1f}" if len(values) > 1 else ""
    return f"{fmean(values):{'+' if signed else ''}.1f}{error}"


def plot(grid: dict[str, Runs], path: Path) -> None:
    """PSNR against bytes a step, over the prompts that all have: budgets as a line, the rest as points."""
    varied = {
        text.replace(f"preset={CONTEXT}, ", "").replace(", codec=none", ""): run
        for name in ("halos", "codec", "refresh")
        for text, run in grid[name].items()
        if text.startswith(f"preset={CONTEXT},") and ("chosen" not in text and "codec=none" not in text.split(", ")[1])
    }
    shown = {text: run for text, run in grid["methods"].items() if text not in EXACT} | varied
    shown = {text: run for text, run in shown.items() if "never" not in text and text != f"preset={CONTEXT}"}
    every = [*shown.values(), *grid["budget"].values()]
    prompts = set.intersection(*(set(run.psnr) for run in every))

    def place(run: Scored) -> tuple[float, float]:
        return run.kilobytes, fmean(run.psnr[prompt] for prompt in prompts)

    figure, axes = plt.subplots(figsize=(9, 5.5))
    for preset, colour in ((CONTEXT, "tab:red"), (LATENT, "tab:blue")):
        line = [place(run) for text, run in grid["budget"].items() if text.startswith(f"preset={preset},")]
        if len(line) > 1:
            axes.plot(*zip(*line, strict=True), "o-", color=colour, label=f"{preset}: k/K from 1/16 to 1")
    for position, (text, run) in enumerate(shown.items()):
        axes.plot(*place(run), "kx", markersize=5)
        label = text.replace("preset=", "").replace("k.budget=", "k/K=").replace("inf", "1")
        axes.annotate(
            label, place(run), fontsize=6, xytext=(4, (4, -8, 12, -16)[position % 4]), textcoords="offset points"
        )
    axes.set_xscale("log")
    axes.set(xlabel="kB a rank sends a step after warm-up (float32)", ylabel="PSNR to one process, dB")
    axes.set_title(f"shapes, 4 slices, 50 steps, prompts {', '.join(sorted(prompts))}", fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def pictures(grid: dict[str, Runs], path: Path) -> None:
    """The flat-field prompt of methods and budgets; below, eight times the difference to one process."""
    shown = {
        text.replace("preset=", "").replace("k.budget=", "k/K="): Image.open(run.images / f"{FLAT_FIELD}.png")
        for name in ("methods", "budget")
        for text, run in grid[name].items()
        if not text.startswith(f"preset={LATENT},")
    }
    original = Image.open(_reference(grid) / f"{FLAT_FIELD}.png").convert("RGB")
    side, head = 160, 14
    canvas = Image.new("RGB", (side * (len(shown) + 1), 2 * side + head), "white")
    for column, (text, image) in enumerate({"reference": original, **shown}.items()):
        picture = image.convert("RGB")
        pixels = zip(picture.getdata(), original.getdata(), strict=True)
        difference = Image.new("RGB", picture.size)
        difference.putdata([tuple(128 + 8 * (a - b) for a, b in zip(now, then, strict=True)) for now, then in pixels])
        ImageDraw.Draw(canvas).text((column * side + 2, 1), text, fill="black")
        canvas.paste(picture.resize((side, side)), (column * side, head))
        canvas.paste(difference.resize((side, side)), (column * side, head + side))
    canvas.save(path)


def _reference(grid: dict[str, Runs]) -> Path:
    """The reference's pictures, beside those of the others."""
    grid_folder = grid["methods"]["preset=distrifusion"].images.parents[1]
    folders = (RunFolder(path) for path in grid_folder.iterdir() if (path / "record.json").exists())
    return next(folder.images for folder in folders if folder.finished and folder.is_reference)


if __name__ == "__main__":
    main()
