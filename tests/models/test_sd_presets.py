"""Every method on tiny Stable Diffusions of four levels, on real ranks. Oracle: diffusers' own pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

import tiny_sd
from composing import composed_of
from otil_exp.cells.prepare import prepare
from otil_exp.conf_tree import conf_folder
from otil_exp.config import ExperimentConfig
from pipelines import Result, run_pipelines

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(900)]

PROMPT, STEPS = "a red circle", 3

TOPOLOGIES = {"2gpu_nosplit": 2, "4gpu_nosplit": 4, "4gpu_split": 2, "8gpu_split": 4}
"""Name -> slices; 64 rows each, which are one row of the lowest level."""

EXACT = ("full_sync", "tensor")
WAITING = ("fold refresh.period=1", "step_reuse refresh.period=1")
"""Methods of whole pictures that wait in every step."""
OTHERS = (
    *("naive_patch", "naive_alternate", "distrifusion", "guide", "otil", "balanced", "tensor_stale", "otil_context"),
    *("balanced codec=residual", "otil_context codec=int8 preset.context.halos=all", "otil preset.gn_sync=fused"),
    *("fold", "fold preset.every=2 preset.order=0", "step_reuse", "step_reuse preset.order=1"),
    *("distrifusion preset.order=1", "otil_context preset.order=1", "tensor_stale preset.order=1"),
)
REFUSED = dict.fromkeys(
    ("asyncdiff", "asyncdiff_stride2"), "AsyncDiff's cuts are those of SDXL's UNet, .*use model=sdxl or preset=fold"
)
CELLS = {
    "2gpu_nosplit": (*EXACT, *WAITING, *OTHERS),
    "4gpu_nosplit": (*EXACT, *WAITING, "otil", "otil_context", "fold", "step_reuse"),
    "4gpu_split": (*EXACT, *WAITING, "guide", "fold", "step_reuse"),
    "8gpu_split": EXACT,
}
"""What is run on each topology: every preset somewhere, or among REFUSED."""
AS_ONE_PROCESS = {words for cells in CELLS.values() for words in cells} - {*OTHERS}
"""What must make the picture of one process; OTHERS come near it."""

NEAR = [(topology, words) for topology, cells in CELLS.items() for words in cells if words in OTHERS]

Made = Callable[[str, str, str], list[Result]]


def width_of(words: str) -> int:
    """64, or of slices that lie side by side in every other step, two of them."""
    return 128 if words == "naive_alternate" else 64


def is_decoded(words: str) -> bool:
    """Whether the picture is looked at, and not the latents alone."""
    return words in AS_ONE_PROCESS


def config_of(folder: Path, kind: str, topology: str, words: str) -> ExperimentConfig:
    """The effective config of `preset=words` on a tiny model that lies in the folder."""
    where = (f"output_dir={folder}", "device=cpu", f"topology={topology}", "k=quarter", *tiny_sd.words(kind, folder))
    size = (
        f"height={64 * TOPOLOGIES[topology]}",
        f"width={width_of(words)}",
        f"num_inference_steps={STEPS}",
        "warmup_steps=0",
    )
    cut = f"engine.sliced_decode={str(is_decoded(words)).lower()}"
    overrides = [*where, *size, "refresh.period=0", cut, *f"preset={words}".split()]
    return prepare(composed_of(*overrides)).effective


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny_sd")
    for kind in tiny_sd.KINDS:
        tiny_sd.tiny_pipeline(kind).save_pretrained(folder / kind)
    return folder


@pytest.fixture(scope="module")
def made(folder: Path) -> Made:
    """made(kind, topology, words): what each rank holds in the end; ranks start once for all cells of a topology."""

    @cache
    def of(topology: str) -> dict[tuple[str, str], list[Result]] | Exception:
        cells = [(kind, words) for kind in tiny_sd.KINDS for words in CELLS[topology]]
        configs = [config_of(folder, kind, topology, words) for kind, words in cells]
        try:
            found = run_pipelines(configs, PROMPT, timeout=800, decode=[is_decoded(words) for _, words in cells])
        except Exception as error:  # kept, so that it is not met anew by every test
            return error
        return dict(zip(cells, found, strict=True))

    def results(kind: str, topology: str, words: str) -> list[Result]:
        found = of(topology)
        if isinstance(found, Exception):
            raise found
        return found[kind, words]

    return results


@dataclass
class OneProcess:
    """What diffusers' own pipeline makes."""

    latents: torch.Tensor
    image: np.ndarray


@cache
def one_process(kind: str, height: int, width: int = 64) -> OneProcess:
    pipeline = tiny_sd.tiny_pipeline(kind)
    pipeline.set_progress_bar_config(disable=True)
    settings = {"height": height, "width": width, "num_inference_steps": STEPS, "guidance_scale": 7.5}
    latents = pipeline(PROMPT, generator=torch.Generator().manual_seed(0), output_type="latent", **settings).images
    with torch.no_grad():
        picture = pipeline.vae.decode(latents / pipeline.vae.config.scaling_factor).sample[0]
    return OneProcess(latents, (picture / 2 + 0.5).clamp(0, 1).permute(1, 2, 0).numpy())


@pytest.mark.parametrize("kind", tiny_sd.KINDS)
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_what_waits_for_everything_is_one_process(made: Made, kind: str, topology: str) -> None:
    alone = one_process(kind, 64 * TOPOLOGIES[topology])
    for words in (words for words in CELLS[topology] if words in AS_ONE_PROCESS):
        for result in made(kind, topology, words):
            assert (result.latents - alone.latents).abs().max() <= 1e-4, words
            assert abs(result.image - alone.image).max() <= 1e-4, words


@pytest.mark.parametrize("kind", tiny_sd.KINDS)
@pytest.mark.parametrize(("topology", "words"), NEAR)
def test_every_method_makes_one_latent_of_all_ranks_near_that_of_one_process(
    made: Made, kind: str, topology: str, words: str
) -> None:
    alone = one_process(kind, 64 * TOPOLOGIES[topology], width_of(words))
    results = made(kind, topology, words)
    first = results[0].latents
    assert all(torch.equal(result.latents, first) for result in results[1:])
    off_by = (first - alone.latents).square().mean().sqrt() / alone.latents.std()
    assert 0 < off_by < 0.5
    assert len(results[0].steps) == STEPS


@pytest.mark.parametrize("kind", tiny_sd.KINDS)
@pytest.mark.parametrize(("preset", "said"), REFUSED.items())
def test_what_cannot_be_is_refused_with_a_sentence(folder: Path, kind: str, preset: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        config_of(folder, kind, "2gpu_nosplit", preset)


def test_every_preset_is_made_or_refused() -> None:
    presets = {path.stem for path in (conf_folder() / "preset").glob("*.yaml")}
    assert presets == {words.split()[0] for cells in CELLS.values() for words in cells} | {*REFUSED, "reference"}


@pytest.mark.parametrize("kind", tiny_sd.KINDS)
def test_the_reference_is_diffusers_bit_for_bit(folder: Path, kind: str) -> None:
    [[made]] = run_pipelines([config_of(folder, kind, "2gpu_nosplit", "reference")], PROMPT)
    assert torch.equal(made.latents, one_process(kind, 128).latents)
