"""The experiments of published tables: they compose, cell by cell, and each cell is a line of a table."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from composing import Compose, sweep_of
from otil_exp.cells.prepare import prepare
from otil_exp.conf_tree import conf_folder
from otil_exp.published.tables import shipped

EXPERIMENTS = sorted(
    path.stem for path in (conf_folder() / "experiment" / "published").glob("*.yaml") if path.stem != "small"
)
SMALL = "+experiment/published=small"


def cells(*overrides: str) -> Iterator[list[str]]:
    """What the sweeper of an experiment adds to the command line, cell by cell."""
    params = sweep_of(*overrides)
    for values in product(*(value.split(",") for value in params.values())):
        yield [f"{key}={value}" for key, value in zip(params, values, strict=True)]


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_the_first_and_the_last_cell_of_the_small_variant_can_run(composed: Compose, experiment: str) -> None:
    words = (f"experiment=published/{experiment}", SMALL)
    first, *_, last = cells(*words)
    for cell in (first, last):
        prepared = prepare(composed(*words, *cell))
        assert prepared.effective.model.name == "shapes"
        assert len(prepared.prompts) == 2


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_half_of_the_steps_of_a_small_variant_are_late(composed: Compose, experiment: str) -> None:
    """Steps 0 to warmup_steps are synchronous, and show nothing of a method."""
    words = (f"experiment=published/{experiment}", SMALL)
    warmups = {composed(*words, *cell).warmup_steps for cell in cells(*words)}
    assert max(warmups) + 1 <= composed(*words).num_inference_steps / 2


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_cell_has_the_settings_of_a_published_line(composed: Compose, experiment: str) -> None:
    """But for cells whose topology the source leaves open, and SD 1.5, whose single GPU is a line, too."""
    words = (f"experiment=published/{experiment}",)
    for cell in cells(*words):
        config = composed(*words, *cell)
        gpus = 1 if config.preset.name == "reference" else config.topology.world_size
        found = [
            line
            for line in shipped()[1]
            if line.row.ours == config.preset.name
            and line.row.gpus == gpus
            and line.settings.model == config.model.architecture
            and (line.settings.height, line.settings.width) == (config.height, config.width)
            and line.settings.num_inference_steps == config.num_inference_steps
            and line.settings.scheduler == config.scheduler.name
            and line.settings.guidance_scale in (None, config.guidance_scale)
            and line.settings.warmup_steps in (None, config.warmup_steps, *[4] * (gpus == 1))
            and line.settings.split_batch in (None, config.topology.split_batch)
        ]
        assert found, cell


def test_pictures_captions_and_seeds_are_those_of_distrifuser_s_scripts(composed: Compose) -> None:
    config = composed("experiment=published/distrifusion")
    assert (config.prompts.source.name, config.prompts.caption.name, config.prompts.limit) == ("coco", "rotating", 5000)
    assert (config.seed, config.groupnorm.name, config.warmup_steps, config.guidance_scale) == (0, "upstream", 4, 5.0)
    assert list(config.metrics.extractors) == ["inception_clean"]
