"""fp8 on real ranks: the same scales on all, in every engine, whoever made the layers."""

from __future__ import annotations

import pytest

from composing import Typed
from otil_exp.cells.normal_form import effective
from otil_exp.config import ExperimentConfig
from otil_exp.pipeline import build_pipeline
from otil_exp.rank_unet.sliced import graph
from places import place
from ranks import run_ranks

SHORT = ("num_inference_steps=3", "warmup_steps=1", "height=64", "width=64", "topology=2gpu_nosplit")
CELLS = (
    ("preset=otil", "k.budget=1"),
    ("preset=otil", "k.budget=1", "engine=compiled"),
    ("preset=fold",),
)


def pictures(rank: int, configs: list[tuple[ExperimentConfig, ExperimentConfig]]) -> list[tuple[dict, float, dict]]:
    """Of each pair without and with fp8: scales, how far apart the latents are, and what is said of the products."""
    graph.BACKEND = "eager"
    ranks = place(rank, split_batch=False)
    results = []
    for plain, quantised in configs:
        with build_pipeline(plain, ranks) as pipeline:
            exact = pipeline("a red circle", 0, decode=False).latents
        with build_pipeline(quantised, ranks) as pipeline:
            found = pipeline("a red circle", 0, decode=False).latents
            scales = {name: layer.scale.item() for name, layer in pipeline._products.layers.items()}
            results.append((scales, float((found - exact).norm() / exact.norm()), pipeline.products()))
    return results


@pytest.mark.ranks
@pytest.mark.timeout(900)
def test_all_ranks_calibrate_alike_in_every_engine(typed: Typed) -> None:
    configs = [
        tuple(effective(typed(*SHORT, *cell, f"engine.products={one}")) for one in ("model_dtype", "fp8"))
        for cell in CELLS
    ]
    first, second = run_ranks(2, pictures, configs, timeout=600)
    for cell, own, other in zip(CELLS, first, second, strict=True):
        shared = own[0].keys() & other[0].keys()
        assert shared or cell[0] == "preset=fold", cell  # which cuts the UNet by depth
        assert {name: own[0][name] for name in shared} == {name: other[0][name] for name in shared}, cell
        assert 0 < own[1] < 0.1, cell
        assert own[2]["calibrated_on"]["steps"] == 2
    assert first[0][0].keys() != first[1][0].keys()  # distrifuser's layers, and ours
