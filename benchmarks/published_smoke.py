"""The whole path of a published table where no weights are: files in the layout of the published ones, made here.

    python -m benchmarks.published_smoke make FOLDER     SDXL's layout (fp16 files, 7 GB) with random weights; captions
    python -m benchmarks.published_smoke run FOLDER      published/distrifusion on one GPU, four captions, and the page

`make` writes FOLDER/sdxl (a saved pipeline: unet, vae, two text encoders, all fp16), captions_val2014.json in
COCO's own form, and val2014/ with pictures of several sizes. Pictures of random weights mean nothing: what is tried is
that loading, captions, seven cells, scores, ground truth and report hold together.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from launchers.coco_pictures import link
from PIL import Image

from otil_exp.models.architecture import SDXL
from otil_exp.models.families import Pipeline
from otil_exp.models.random_weights import random_pipeline

SIZES = ((480, 640), (640, 480), (427, 640), (640, 426))
"""Heights and widths that COCO's pictures have."""


def save_as_published(pipeline: Pipeline, folder: Path) -> None:
    """As the published SDXL lies on disk: half-precision safetensors that say fp16 in their names, and no others."""
    pipeline.to(torch.float16).save_pretrained(folder, variant="fp16", safe_serialization=True)


def coco_files(folder: Path, pictures: int) -> Path:
    """captions_val2014.json in COCO's form, and val2014/ beside it; the path of the captions.

    Five captions a picture, whose ids do not rise with those of the pictures, as in COCO.
    """
    rng = np.random.default_rng(0)
    ids = sorted(int(one) for one in rng.choice(580_000, pictures, replace=False))
    (folder / "val2014").mkdir(parents=True)
    images, annotations = [], []
    for number, image in enumerate(ids):
        height, width = SIZES[number % len(SIZES)]
        name = f"COCO_val2014_{image:012d}.jpg"
        noise = rng.integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((width, height)).save(folder / "val2014" / name)
        images.append({"license": 3, "file_name": name, "height": height, "width": width, "id": image})
        annotations += [
            {"image_id": image, "id": int(rng.integers(1_000_000)), "caption": f"Picture {number} in words {i}. "}
            for i in range(5)
        ]
    rng.shuffle(annotations)  # type: ignore[arg-type]
    content = {"info": {"year": 2014}, "images": images[::-1], "licenses": [], "annotations": annotations}
    captions = folder / "captions_val2014.json"
    captions.write_text(json.dumps(content), encoding="utf-8")
    return captions


def words(folder: Path) -> list[str]:
    """What is typed after `otil-exp`: the published table on one GPU, with scores whose weights ship."""
    return [
        "experiment=published/distrifusion",
        f"model.source={folder / 'sdxl'}",
        f"prompts.path={folder / 'captions_val2014.json'}",
        "prompts.limit=4",
        "device=shared_gpu",
        "metrics=pairwise",
        "metrics.extractors=[effnet_lite0]",
        f"metrics.ground_truth={folder / 'ground_truth'}",
        f"output_dir={folder / 'outputs'}",
    ]


def make(folder: Path) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    save_as_published(random_pipeline(SDXL, torch.float16, device), folder / "sdxl")
    link(coco_files(folder, 16), folder / "val2014", folder / "ground_truth", limit=16)


def run(folder: Path) -> None:
    subprocess.run(["otil-exp", *words(folder)], check=True)
    subprocess.run(["otil-report", folder / "outputs" / "published_distrifusion", "--published"], check=True)


if __name__ == "__main__":
    command, where = sys.argv[1:]
    {"make": make, "run": run}[command](Path(where))
