"""What lies around the steps of an SDXL picture on one GPU, and why the host is slow to launch some steps.

    python -m benchmarks.around_the_steps FOLDER [--compiled]

Seeded random weights (model=sdxl_random), 1024 x 1024, fp16. Milliseconds of the text encoders, called, and replayed
from CUDA graphs as runs do it; of the VAE's decoder, as the pipeline calls it, in a graph, and in channels_last; and
what the host does while it launches a whole UNet at 1024², 2048² and 3840², beside chains of kernels that only wait.
--compiled: the VAE and the UNet at 2048² compiled, too (minutes). FOLDER/figures.json is written after each part.
Without a GPU the model is shapes at 256 x 256, and what takes a GPU is left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.around_the_steps.decoder import compiled_decoder, decoder
from benchmarks.around_the_steps.launching import chains, compiled_unet, whole_unets
from benchmarks.around_the_steps.text import text
from otil_exp.choices import Dtype, Scheduler
from otil_exp.config import ModelConfig
from otil_exp.models.loading import Models
from otil_exp.run_folder.whole import write_text


def main() -> int:
    options = _options()
    options.folder.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {}
    begun = time.monotonic()

    def keep(name: str, measure: Callable[[], Any]) -> Any:
        figures[name] = measure()
        print(f"{time.monotonic() - begun:5.1f} s  {name}: {json.dumps(figures[name], indent=1)}", flush=True)
        write_text(options.folder / "figures.json", json.dumps(figures, indent=1))

    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    with torch.no_grad():
        pipeline = Models().load(_model(on_gpu), Scheduler.ddim, device)
        size = 1024 if on_gpu else 256
        keep("text encoders", lambda: text(pipeline, device))
        keep("VAE", lambda: decoder(pipeline, size, device))
        if on_gpu:
            keep("chains of kernels", chains)
            keep("whole UNets", lambda: whole_unets(pipeline.unet))
        if options.compiled:
            keep("VAE, compiled", lambda: compiled_decoder(pipeline, size, device))
        if options.compiled and on_gpu:
            del pipeline
            keep("UNet, compiled", compiled_unet)
    return 0


def _model(on_gpu: bool) -> ModelConfig:
    if not on_gpu:
        return ModelConfig(name="shapes", architecture="shapes", source="package")
    return ModelConfig(name="sdxl_random", architecture="sdxl", source="random", dtype=Dtype.float16)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.around_the_steps",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="where figures.json is written")
    parser.add_argument("--compiled", action="store_true", help="compile the VAE and the UNet at 2048² as well")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
