"""What lies around the steps of an SDXL picture on one GPU, and why the host is slow to launch some steps.

    python -m benchmarks.around_the_steps FOLDER [--compiled | --only PART [PART ...]]

Seeded random weights (model=sdxl_random), 1024 x 1024, fp16. Milliseconds of the text encoders, called, and replayed
from CUDA graphs as runs do it; of the VAE's decoder, as the pipeline calls it, in a graph, with its GroupNorms spread
as runs with engine=compiled have them, and both layouts; and what the host does while it launches a whole UNet at
1024², 2048² and 3840², beside chains of kernels that only wait.
--compiled: the VAE and the UNet at 2048² compiled, too (minutes). --only: these parts alone.
FOLDER/figures.json is written anew after each part.
Without a GPU the model is shapes at 256 x 256, and what takes a GPU is left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from benchmarks.around_the_steps.decoder import compiled_decoder, decoder
from benchmarks.around_the_steps.launching import chains, compiled_unet, whole_unets
from benchmarks.around_the_steps.text import text
from otil_exp.choices import Dtype, Scheduler
from otil_exp.config import ModelConfig
from otil_exp.models.families import Pipeline
from otil_exp.models.loading import Models
from otil_exp.run_folder.whole import write_text

COMPILED = ("VAE, compiled", "UNet, compiled")

ON_GPU_ALONE = ("chains of kernels", "whole UNets", "UNet, compiled")

PARTS = ("text encoders", "VAE", "chains of kernels", "whole UNets", *COMPILED)
"""In the order in which they are measured."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {}
    begun = time.monotonic()
    measures = _measures()
    with torch.no_grad():
        for part in options.parts:
            figures[part] = measures[part]()
            print(f"{time.monotonic() - begun:5.1f} s  {part}: {json.dumps(figures[part], indent=1)}", flush=True)
            write_text(options.folder / "figures.json", json.dumps(figures, indent=1))
    return 0


def _measures() -> dict[str, Callable[[], Any]]:
    """What measures each part; the model is loaded when the first one needs it."""
    on_gpu = torch.cuda.is_available()
    device, size = torch.device("cuda" if on_gpu else "cpu"), 1024 if on_gpu else 256

    @cache
    def pipeline() -> Pipeline:
        return Models().load(_model(on_gpu), Scheduler.ddim, device)

    def without_pipeline() -> dict[str, Any]:
        pipeline.cache_clear()
        return compiled_unet()

    return {
        "text encoders": lambda: text(pipeline(), device),
        "VAE": lambda: decoder(pipeline(), size, device),
        "chains of kernels": chains,
        "whole UNets": lambda: whole_unets(pipeline().unet),
        "VAE, compiled": lambda: compiled_decoder(pipeline(), size, device),
        "UNet, compiled": without_pipeline,
    }


def _model(on_gpu: bool) -> ModelConfig:
    if not on_gpu:
        return ModelConfig(name="shapes", architecture="shapes", source="package")
    return ModelConfig(name="sdxl_random", architecture="sdxl", source="random", dtype=Dtype.float16)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What was typed, and in `parts` the names of those to measure."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks.around_the_steps",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="where figures.json is written")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--compiled", action="store_true", help="compile the VAE and the UNet at 2048² as well")
    which.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=f"of {', '.join(map(repr, PARTS))}")
    options = parser.parse_args(arguments)
    impossible = () if torch.cuda.is_available() else ON_GPU_ALONE
    if options.only:
        if missed := [part for part in options.only if part in impossible]:
            parser.error(f"--only: there is no GPU, which these parts need: {', '.join(missed)}")
        options.parts = [part for part in PARTS if part in options.only]
    else:
        left_out = (*impossible, *(() if options.compiled else COMPILED))
        options.parts = [part for part in PARTS if part not in left_out]
    return options


if __name__ == "__main__":
    sys.exit(main())
