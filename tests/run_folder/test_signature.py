"""Signatures outlive versions: pinned, and blind to what is new, renamed or said again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass, replace
from typing import Any

import pytest

from composing import Typed
from otil_exp.cells.normal_form import effective
from otil_exp.choices import Products
from otil_exp.config import EngineConfig, ExperimentConfig, KConfig, MethodConfig
from otil_exp.methods.context_blocks.config import ContextBlocksConfig
from otil_exp.methods.naive_patch.config import NaivePatchConfig, SplitScheme
from otil_exp.methods.silent_layers.config import SilentLayersConfig
from otil_exp.prompts import Prompt
from otil_exp.run_folder.signature import picture_key, said, signature

PROMPTS = [Prompt(index=0, text="a red circle", seed=0), Prompt(index=1, text="a blue square", seed=1)]

PINNED = {
    ("reference", "1gpu"): "27c82dc0f8cd",
    ("otil", "4gpu_split"): "e4ee2fa08e64",
    ("otil_context", "4gpu_nosplit"): "fcc65de8213b",
}
"""Of version 0.2's defaults on a CPU: if one of these changes, so do the names of all finished runs (CHANGELOG)."""


@pytest.fixture
def otil(typed: Typed) -> ExperimentConfig:
    return effective(typed("preset=otil", "topology=4gpu_split"))


@pytest.mark.parametrize(("preset", "topology"), PINNED)
def test_a_finished_run_is_found_by_later_versions(typed: Typed, preset: str, topology: str) -> None:
    config = effective(typed(f"preset={preset}", f"topology={topology}"))
    assert signature(config, PROMPTS) == PINNED[preset, topology]


@dataclass
class LaterEngine(EngineConfig):
    """The engine of a later version."""

    fused_kernels: bool = False


@dataclass
class LaterExperiment(ExperimentConfig):
    """The schema of a later version."""

    engine: EngineConfig = field(default_factory=LaterEngine)
    mood: str = "calm"


def grown(settings: MethodConfig, name: str, default: Any) -> Any:
    """The settings of a method in a later version: of the same class name, with one field more."""
    kind = type(settings)
    later = make_dataclass(kind.__name__, [(name, type(default), field(default=default))], bases=(kind,))
    return later(**vars(settings))


def both(config: ExperimentConfig) -> tuple[str, str]:
    return signature(config, PROMPTS), picture_key(config)


def test_a_field_that_a_method_gains_renames_no_run(otil: ExperimentConfig) -> None:
    later = replace(otil, preset=grown(otil.preset, "momentum", 0.5))
    assert both(later) == both(otil)
    changed = replace(later, preset=replace(later.preset, momentum=0.25))  # type: ignore[call-arg]
    assert signature(changed, PROMPTS) != signature(otil, PROMPTS)
    assert picture_key(changed) == picture_key(otil)


def test_a_field_that_the_schema_gains_renames_no_run(otil: ExperimentConfig) -> None:
    later = LaterExperiment(**vars(otil) | {"engine": LaterEngine(**vars(otil.engine))})
    assert both(later) == both(otil)
    changed = [replace(later, mood="wild"), replace(later, engine=replace(later.engine, fused_kernels=True))]
    assert len({signature(one, PROMPTS) for one in [later, *changed]}) == 3


def test_methods_of_two_families_differ_even_where_all_else_is_default(otil: ExperimentConfig) -> None:
    presets = [SilentLayersConfig(name="mine"), ContextBlocksConfig(name="mine"), MethodConfig(name="mine")]
    configs = [replace(otil, preset=preset) for preset in presets]
    assert len({signature(config, PROMPTS) for config in configs}) == 3
    assert len({picture_key(config) for config in configs}) == 1


def test_what_is_said_is_what_differs_from_the_schema(otil: ExperimentConfig) -> None:
    """By hand: otil has 10 steps between refreshes, a quarter of 128 blocks of 2 x 2, and transmits what it selects."""
    here = said(otil)
    assert here["preset"] == {
        "of": "SilentLayersConfig",
        "noise_gather": False,
        "cfg_repair": True,
        "gn_sync": True,
        "transmit": {"of": "SelectionConfig", "block_size": 2.0},
    }
    assert here["refresh"] == {"period": 10.0}
    assert here["topology"] == {"world_size": 4.0, "split_batch": True}
    assert here["device"] == {"kind": "cpu"}
    assert not {"name", "output_dir", "tracker", "metrics", "launch", "seed", "codec", "benchmark"} & set(here)


@pytest.mark.parametrize(
    "change",
    [
        lambda config: replace(config, k=KConfig(budget=7.0)),
        lambda config: replace(config, height=320),
        lambda config: replace(config, guidance_scale=6.0),
        lambda config: replace(config, preset=replace(config.preset, gn_sync="fused")),
        lambda config: replace(config, model=replace(config.model, source="elsewhere")),
    ],
)
def test_a_changed_value_is_another_run(
    otil: ExperimentConfig, change: Callable[[ExperimentConfig], ExperimentConfig]
) -> None:
    assert signature(change(otil), PROMPTS) != signature(otil, PROMPTS)


def test_another_prompt_or_seed_is_another_run_with_comparable_pictures(otil: ExperimentConfig) -> None:
    sets = [
        PROMPTS,
        PROMPTS[:1],
        [PROMPTS[0], replace(PROMPTS[1], seed=2)],
        [PROMPTS[0], replace(PROMPTS[1], text="x")],
    ]
    assert len({signature(otil, prompts) for prompts in sets}) == 4


def test_numbers_are_alike_however_they_are_typed(otil: ExperimentConfig) -> None:
    """guidance_scale=5 and 5.0, k.budget=7 and 7.0; but true is no 1."""
    for field_name, whole, real in [("guidance_scale", 6, 6.0), ("height", 320, 320.0)]:
        assert both(replace(otil, **{field_name: whole})) == both(replace(otil, **{field_name: real}))
    assert both(replace(otil, k=KConfig(budget=7))) == both(replace(otil, k=KConfig(budget=7.0)))
    assert both(replace(otil, guidance_scale=5)) == both(otil)
    assert said(EngineConfig(sliced_decode=True)) == {"sliced_decode": True}
    assert said(EngineConfig(products=Products.fp8)) == {"products": "fp8"}
    assert said(replace(otil, preset=SilentLayersConfig(name="x", gn_sync=True)))["preset"]["gn_sync"] is True


def test_a_value_without_default_is_always_said(otil: ExperimentConfig) -> None:
    preset = NaivePatchConfig(name="naive_patch", split_scheme=SplitScheme.row)
    assert said(replace(otil, preset=preset))["preset"] == {"of": "NaivePatchConfig", "split_scheme": "row"}
