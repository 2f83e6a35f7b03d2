"""fp8 on real ranks: the same scales on all, in every engine, whoever made the layers."""

from __future__ import annotations

import pytest

from composing import Typed
from otil_exp.cells.normal_form import effective
from otil_exp.config import ExperimentConfig
from otil_exp.models.loading import Models
from otil_exp.pipeline import build_pipeline
from otil_exp.rank_unet import compiled_call
from places import place
from ranks import run_ranks

SHORT = ("num_inference_steps=3", "warmup_steps=1", "height=64", "width=64", "topology=2gpu_nosplit")
OTIL, FOLD = ("preset=otil", "k.budget=1"), ("preset=fold",)
FP8 = "engine.products=fp8"
CELLS = {
    "otil": OTIL,
    "otil in fp8": (*OTIL, FP8),
    "otil in fp8, compiled": (*OTIL, FP8, "engine=compiled"),
    "fold": FOLD,
    "fold in fp8": (*FOLD, FP8),
}
PAIRS = {name: name.split(" in ")[0] for name in CELLS if "fp8" in name}
"""Without fp8, layers that are compiled make what distrifuser's make (test_sliced.py): they need no picture of their
own here."""


def pictures(rank: int, configs: dict[str, ExperimentConfig]) -> dict[str, tuple[dict, float, dict]]:
    """Of each cell with fp8: scales, how far its latents are from those without, and what is said of the products."""
    compiled_call.BACKEND = "eager"
    ranks, models = place(rank, split_batch=False), Models()
    latents, said = {}, {}
    for name, config in configs.items():
        with build_pipeline(config, ranks, models, keep_weights=True) as pipeline:
            latents[name] = pipeline("a red circle", 0, decode=False).latents
            if name in PAIRS:
                scales = {layer: its.scale.item() for layer, its in pipeline._products.layers.items()}
                said[name] = scales, pipeline.products()
    off_by = {name: float((latents[name] - latents[of]).norm() / latents[of].norm()) for name, of in PAIRS.items()}
    return {name: (scales, off_by[name], products) for name, (scales, products) in said.items()}


@pytest.mark.ranks
@pytest.mark.timeout(900)
def test_all_ranks_calibrate_alike_in_every_engine(typed: Typed, two_levels: tuple[str, ...]) -> None:
    configs = {name: effective(typed(*two_levels, *SHORT, *cell)) for name, cell in CELLS.items()}
    first, second = run_ranks(2, pictures, configs, timeout=600)
    for name in PAIRS:
        own, other = first[name], second[name]
        shared = own[0].keys() & other[0].keys()
        assert shared or name == "fold in fp8"  # which cuts the UNet by depth
        assert {layer: own[0][layer] for layer in shared} == {layer: other[0][layer] for layer in shared}, name
        assert 0 < own[1] < 0.1, name
        assert own[2]["calibrated_on"]["steps"] == 2
    called, compiled = (first[name][0].keys() for name in ("otil in fp8", "otil in fp8, compiled"))
    assert called != compiled  # distrifuser's layers, and ours
    said = {name: [set(rank[name][2]["layers"]) for rank in (first, second)] for name in PAIRS}
    transformers = {name.partition(".attn")[0] for name in compiled if ".attn1.to_qkv" in name}
    assert len(said["otil in fp8"][0]) == 5 * len(transformers)  # query; keys and values; query; in; out
    assert len(said["otil in fp8, compiled"][0]) == 4 * len(transformers)
    assert len(set.union(*said["fold in fp8"])) == 6 * len(transformers)
    assert not set.intersection(*said["fold in fp8"])
