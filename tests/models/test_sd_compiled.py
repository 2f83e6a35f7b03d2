"""Stable Diffusions compiled, on real ranks; of two levels, since dynamo takes seconds a graph and a level adds none.

Oracles: diffusers' own pipeline, and the same methods with distrifuser's layers.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tiny_sd
from composing import composed_of
from otil_exp.cells.prepare import prepare
from otil_exp.choices import Engine
from otil_exp.config import ExperimentConfig
from otil_exp.rank_unet import compiled_call
from pipelines import Result, run_pipelines

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(900)]

PROMPT, STEPS, SIZE = "a red circle", 3, 64

CELLS = (("sd15", "otil preset.gn_sync=fused"), ("sd15", "fold"), ("sd21", "full_sync"))
"""Kinds of models with a method."""
ENGINES = ("eager", "compiled")

Made = dict[tuple[str, str, str], list[Result]]


def config_of(folder: Path, kind: str, words: str, engine: str) -> ExperimentConfig:
    """The effective config of `preset=words` on a tiny model that lies in the folder."""
    where = (f"output_dir={folder}", "device=cpu", "topology=2gpu_nosplit", *tiny_sd.words(kind, folder))
    size = (f"height={SIZE}", f"width={SIZE}", f"num_inference_steps={STEPS}", "warmup_steps=0", "refresh.period=0")
    return prepare(composed_of(*where, *size, "k=quarter", f"engine={engine}", *f"preset={words}".split())).effective


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two_level_sd")
    for kind in tiny_sd.KINDS:
        tiny_sd.tiny_pipeline(kind, tiny_sd.TWO_LEVELS).save_pretrained(folder / kind)
    return folder


@pytest.fixture(scope="module")
def made(folder: Path) -> Made:
    """What each rank holds in the end, of each cell called and compiled; ranks start once."""
    cells = [(kind, words, engine) for kind, words in CELLS for engine in ENGINES]
    configs = [config_of(folder, *cell) for cell in cells]
    assert [config.engine.name for config in configs] == [Engine.eager, Engine.compiled] * len(CELLS)
    return dict(zip(cells, run_pipelines(configs, PROMPT, timeout=800), strict=True))


@pytest.mark.parametrize(("kind", "words"), CELLS)
def test_compiled_layers_give_what_distrifusers_give(made: Made, kind: str, words: str) -> None:
    for one, other in zip(*(made[kind, words, engine] for engine in ENGINES), strict=True):
        assert (one.latents - other.latents).abs().max() <= 1e-4


@pytest.mark.parametrize("kind", tiny_sd.KINDS)
def test_the_compiled_reference_is_diffusers(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(compiled_call, "BACKEND", "eager")
    pipeline = tiny_sd.tiny_pipeline(kind, tiny_sd.TWO_LEVELS)
    pipeline.set_progress_bar_config(disable=True)
    settings = {"height": SIZE, "width": SIZE, "num_inference_steps": STEPS, "guidance_scale": 7.5}
    alone = pipeline(PROMPT, generator=torch.Generator().manual_seed(0), output_type="latent", **settings).images
    [[compiled]] = run_pipelines([config_of(folder, kind, "reference", "compiled")], PROMPT)
    assert (compiled.latents - alone).abs().max() <= 1e-4
