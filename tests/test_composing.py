"""The quick way to compose gives what Hydra gives."""

from __future__ import annotations

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException

from composing import composed_of
from otil_exp.conf_tree import conf_folder
from otil_exp.schema import register_schema

TYPED = [
    ("preset=balanced", "refresh=rolling10", "codec=int8", "k=k8", "engine=compiled", "tracker=wandb_offline"),
    ("preset=tensor_stale", "topology=8gpu_split", "metrics=shapes", "prompts=coco", "model=sd21", "device=cpu"),
    ("device=cpu", "preset=otil", "k.budget=8", "topology=4gpu_split", "preset.transmit={score: l2}"),
    (
        "preset=otil",
        "refresh.period=3",
        "refresh=never",
        "preset=guide",
    ),  # a later choice of a group, a value before it
    ("experiment=published/distrifusion", "+experiment/published=small", "model=shapes", "height=512", "height=320"),
    ("preset=fold", "prompts.texts=[a, 'b c']", "++preset.every=2", "hydra.job.name=x", "name='a b'"),
]


@pytest.mark.parametrize("words", TYPED, ids=" ".join)
def test_it_is_what_hydra_composes(words: tuple[str, ...]) -> None:
    register_schema()
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        expected = compose("config", list(words))
    for _ in range(2):  # the second time from what is kept
        assert composed_of(*words) == expected


@pytest.mark.parametrize("words", [("warmup=3",), ("height=abc",), ("~preset.cfg_repair",), ("preset=none",)])
def test_it_refuses_what_hydra_refuses_in_its_words(words: tuple[str, ...]) -> None:
    register_schema()
    with initialize_config_dir(str(conf_folder()), version_base="1.3"), pytest.raises(HydraException) as expected:
        compose("config", list(words))
    with pytest.raises(HydraException) as refused:
        composed_of(*words)
    assert str(refused.value) == str(expected.value)


def test_a_config_that_is_changed_changes_no_other() -> None:
    composed_of("preset=otil").preset.transmit.score = "l2"
    assert composed_of("preset=otil").preset.transmit.score == "cosine"
