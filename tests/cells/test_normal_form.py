"""Equal cells are one cell, different cells are not."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import yaml

from composing import Compose, Typed
from otil_exp.cells.normal_form import effective
from otil_exp.cells.prepare import prepare
from otil_exp.choices import Engine
from otil_exp.conf_tree import conf_folder
from otil_exp.methods.rooms import method_of
from otil_exp.methods.whole.rules import REFERENCE
from otil_exp.run_folder.signature import picture_key, signature


def signatures(composed: Compose, cells: list[list[str]]) -> list[str]:
    return [prepare(composed("device=cpu", *cell)).folder.path.name for cell in cells]


def same(composed: Compose, *cells: list[str]) -> bool:
    return len(set(signatures(composed, list(cells)))) == 1


def test_the_reference_is_one_cell_on_every_topology(composed: Compose) -> None:
    topologies = ["1gpu", "2gpu_split", "4gpu_split", "8gpu_nosplit"]
    assert same(composed, *[["preset=reference", f"topology={t}", k] for t in topologies for k in ("k=k8", "k=k16")])


def test_two_gpus_with_split_batch_are_one_cell_for_every_patch_preset(composed: Compose) -> None:
    presets = ["naive_patch", "full_sync", "distrifusion", "guide", "otil", "otil_context", "balanced"]
    assert same(composed, *[[f"preset={p}", "topology=2gpu_split"] for p in presets])
    assert not same(composed, ["preset=reference"], ["preset=otil", "topology=2gpu_split"])


@pytest.mark.parametrize(
    ("preset", "ignored"),
    [
        ("balanced", ["k=k8", "k=k16"]),
        ("distrifusion", ["k=k8", "refresh=every5"]),
        ("full_sync", ["warmup_steps=1", "warmup_steps=7"]),
        ("tensor", ["groupnorm=exact", "groupnorm=upstream"]),
        ("tensor", ["preset=tensor", "preset.stale_layers=[attention]"]),
        ("otil", ["codec=none", "codec=int8"]),
        ("distrifusion", ["codec=none", "codec=int8", "codec.scope=all"]),
        ("otil_context", ["codec.scope=late", "codec.scope=all"]),
        ("distrifusion", ["refresh=never", "refresh=rolling10"]),
        ("otil_context", [f"preset.context={{score: random, against: {a}}}" for a in ("previous_step", "last_sent")]),
        (
            "otil_context",
            [f"preset.context={{score: random, score_on: {on}}}" for on in ("latent", "last_attention")],
        ),
        ("otil_context", ["k=k32", "k.budget=0.25"]),
        ("tensor_stale", ["refresh=never", "refresh=every5"]),
        (
            "tensor_stale",
            ["preset.stale_layers=[attention,feed_forward]", "preset.stale_layers=[feed_forward,attention]"],
        ),
        ("naive_patch", ["groupnorm=exact", "groupnorm=upstream", "warmup_steps=2"]),
        ("otil", ["name=a", "name=b", "tracker=none", "metrics=none", "launch.collective_timeout_s=7"]),
        ("otil", ["k=k32", "k.budget=0.25"]),  # K = 128 blocks of 2 x 2 in 16 x 32 latent pixels; a quarter is 32
        ("otil", ["preset.name=otil", "preset.name=mine"]),
        ("otil", ["refresh=never", "refresh.period=46"]),  # steps 5..49: the 46th after warm-up never comes
    ],
)
def test_what_a_method_ignores_makes_no_new_cell(composed: Compose, preset: str, ignored: list[str]) -> None:
    assert same(composed, *[[f"preset={preset}", override] for override in ignored])


@pytest.mark.parametrize(("preset", "kind"), [("otil", "transmit"), ("otil_context", "context")])
def test_how_blocks_are_chosen_matters_only_where_some_are_not_sent(composed: Compose, preset: str, kind: str) -> None:
    choices = [[], *([f"preset.{kind}.{one}"] for one in ("score=l2", "against=last_sent", "polling=false"))]
    assert same(composed, *[[f"preset={preset}", "k=all", *choice] for choice in choices])
    assert len(set(signatures(composed, [[f"preset={preset}", "k=quarter", *choice] for choice in choices]))) == 4


def test_what_blocks_are_scored_on_matters_only_where_some_are_not_sent(composed: Compose) -> None:
    latent, layer = (f"preset.context.score_on={on}" for on in ("latent", "first_attention"))
    for k, alike in (("k=all", True), ("k=quarter", False)):
        assert same(composed, *[["preset=otil_context", k, on] for on in (latent, layer)]) == alike


CODED = ("codec=none", *(f"codec={one}" for one in ("fp8", "int8", "residual", "residual4", "residual2", "residual1")))


@pytest.mark.parametrize("preset", ["otil", "guide", "distrifusion", "full_sync", "balanced", "otil_context"])
def test_a_codec_of_every_exchange_makes_a_new_cell_of_every_patch_method(composed: Compose, preset: str) -> None:
    cells = [[f"preset={preset}", codec, "codec.scope=all"] for codec in CODED]
    assert len(set(signatures(composed, cells))) == len(CODED)
    assert same(composed, cells[0], [f"preset={preset}"])
    late = [f"preset={preset}", "codec=residual4"]
    assert not same(composed, late, [*late, "codec.scope=all"])


def test_a_codec_is_ignored_where_layers_exchange_no_context_or_have_no_peers(composed: Compose) -> None:
    for preset in ("preset=tensor", "preset=naive_patch", "preset=reference"):
        assert same(composed, [preset], [preset, "codec=int8", "codec.scope=all"])
    alone = ["preset=otil", "topology=2gpu_split"]
    assert same(composed, alone, [*alone, "codec=int8", "codec.scope=all"])


@pytest.mark.parametrize(
    ("preset", "matters"),
    [
        ("otil", ["k=k8", "k=k16", "k=all"]),
        ("otil", ["refresh=never", "refresh=every5", "refresh.period=45"]),
        ("otil", ["warmup_steps=1", "warmup_steps=7"]),
        ("otil", ["groupnorm=exact", "groupnorm=upstream"]),
        ("balanced", ["codec=none", "codec=int8", "codec=residual"]),
        ("otil_context", ["codec=none", "codec=fp8", "codec=residual", "k=k8", "preset.context.overlap=step"]),
        ("otil", ["refresh=every10", "refresh=rolling10"]),
        ("tensor_stale", ["warmup_steps=1", "preset.stale=all", "preset.stale_layers=[attention]"]),
        ("otil", ["seed=0", "seed=1"]),
        ("otil", ["prompts.limit=2", "prompts.limit=3"]),
        ("otil", ["preset.cfg_repair=true", "preset.cfg_repair=false"]),
        ("reference", ["num_inference_steps=50", "num_inference_steps=49", "scheduler=euler", "mode=benchmark"]),
    ],
)
def test_what_changes_pictures_or_times_makes_a_new_cell(composed: Compose, preset: str, matters: list[str]) -> None:
    found = signatures(composed, [[f"preset={preset}", override] for override in matters])
    assert len(set(found)) == len(matters)


def test_tensor_stale_without_stale_layers_is_tensor(composed: Compose) -> None:
    assert same(composed, ["preset=tensor"], ["preset=tensor_stale", "preset.stale_layers=[]"])
    assert same(composed, *[[f"preset={p}", "topology=2gpu_split"] for p in ("tensor", "tensor_stale")])


def test_the_experiment_sweep_has_eight_distinct_cells(composed: Compose) -> None:
    """Reference once, two GPUs once, four GPUs split and not for guide, otil and balanced: 1 + 1 + 6."""
    sweep = yaml.safe_load((conf_folder() / "experiment" / "sweep.yaml").read_text(encoding="utf-8"))
    params = sweep["hydra"]["sweeper"]["params"]
    cells = list(itertools.product(*([f"{key}={one}" for one in values.split(",")] for key, values in params.items())))
    assert len(cells) == 16
    assert len(set(signatures(composed, [list(cell) for cell in cells]))) == 8


def test_a_method_on_one_rank_is_the_reference_of_the_yaml(typed: Typed) -> None:
    assert typed("preset=reference").preset == REFERENCE
    assert effective(typed("preset=otil", "topology=1gpu")).preset == REFERENCE


def test_an_output_folder_that_cannot_be_made_is_refused(composed: Compose) -> None:
    with pytest.raises(ValueError, match="output_dir: /proc/nowhere/runs cannot .* use output_dir=FOLDER"):
        prepare(composed("device=cpu", "output_dir=/proc/nowhere"))


def test_a_model_that_is_not_here_is_refused(
    composed: Compose, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="otil-exp-fetch stabilityai/.* --variant fp16"):
        prepare(composed("device=cpu", "model=sdxl", "model.dtype=float32"))
    with pytest.raises(FileNotFoundError, match="--variant ''"):
        prepare(composed("device=cpu", "model=sdxl", "model.dtype=float32", "model.variant=null"))


def test_a_decoder_is_cut_only_where_pictures_are_decoded_by_several_ranks(typed: Typed) -> None:
    def cut(*overrides: str) -> bool:
        return effective(typed("preset=otil", "engine.sliced_decode=true", *overrides)).engine.sliced_decode

    assert cut("topology=4gpu_split")
    assert not cut("topology=1gpu")
    assert not cut("topology=4gpu_split", "mode=benchmark")


def test_context_that_nobody_would_read_is_not_sent(composed: Compose) -> None:
    """Of 50 steps 0..4 are synchronous, 45 silent: what is sent after step 5 + every - 1 must still find a reader."""
    sends, silent = (["preset=otil_context", "refresh=never", f"preset.context.every={n}"] for n in (44, 45))
    balanced = ["preset=balanced", "refresh=never"]
    assert not same(composed, sends, balanced)
    assert same(composed, silent, balanced)
    assert same(composed, [*silent, "preset.gn_sync=false"], [*balanced, "preset.gn_sync=false"])
    assert not same(composed, [*silent, "preset.gn_sync=false"], balanced)
    late = [*sends, "preset.context.overlap=step"]  # read a step later, when there is none
    assert same(composed, late, balanced)


def test_a_refresh_before_anything_is_read_leaves_nothing_to_send(composed: Compose) -> None:
    """Of two steps in a row one is synchronous: what is sent after the other is renewed before it is read."""
    assert same(composed, *[[f"preset={p}", "refresh.period=2"] for p in ("otil_context", "balanced")])
    assert not same(composed, *[[f"preset={p}", "refresh.period=3"] for p in ("otil_context", "balanced")])


def test_a_codec_that_nothing_goes_through_does_not_come_to_the_noise_prediction(composed: Compose) -> None:
    """otil_context gathers the noise prediction as it is, `balanced` in the codec's bytes."""
    silent, plain = ["preset=otil_context", "refresh.period=2", "codec=int8"], ["preset=balanced", "refresh.period=2"]
    assert same(composed, silent, plain)
    assert not same(composed, silent, [*plain, "codec=int8"])
    in_layers = [*silent, "codec.scope=all"]
    assert not same(composed, in_layers, plain)
    assert not same(composed, in_layers, [*plain, "codec=int8", "codec.scope=all"])


def test_whose_halos_are_sent_matters_only_where_some_blocks_are_not(composed: Compose) -> None:
    halos = [f"preset.context.halos={choice}" for choice in ("chosen", "all")]
    for k, alike in (("k=all", True), ("k=quarter", False)):
        assert same(composed, *[["preset=otil_context", k, one] for one in halos]) == alike


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([], ["model.name=mine"]),
        ([], ["model.variant=fp16"]),  # of a model that ships
        (["preset.transmit.block_size=2"], ["preset.transmit.block_size=2", "model.block_size=4"]),
        (["height=256", "width=256"], ["height=256", "width=256", "model.sample_size=512"]),
        (["preset.gn_sync=true"], ["preset.gn_sync='True'"]),
        (["preset.gn_sync=false"], ["preset.gn_sync='false'"]),
    ],
)
def test_a_name_and_what_was_typed_anew_change_neither_run_nor_pictures(
    composed: Compose, first: list[str], second: list[str]
) -> None:
    one, other = (prepare(composed("device=cpu", "preset=otil", *overrides)) for overrides in (first, second))
    assert signature(one.effective, one.prompts) == signature(other.effective, other.prompts)
    assert picture_key(one.effective) == picture_key(other.effective)


@pytest.mark.parametrize("preset", ["distrifusion", "otil_context", "tensor"])
def test_layers_that_cannot_be_compiled_are_the_cell_of_what_they_run_as(composed: Compose, preset: str) -> None:
    assert same(composed, *[[f"preset={preset}", f"engine={engine}"] for engine in ("compiled", "eager")])
    assert not same(composed, *[["preset=otil", f"engine={engine}"] for engine in ("compiled", "eager")])


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["preset=distrifusion"], "sync_mode=corrected_async_gn sends while layers compute"),
        (["preset=balanced", "groupnorm=upstream"], "groupnorm=upstream"),
        (["preset=tensor"], "tensor parallelism"),
        (["preset=otil_context"], "block by block"),
        (["preset=otil", "codec=residual4", "codec.scope=all"], "codec.scope=all encodes between distrifuser's layers"),
        (["preset=otil", "refresh=rolling10"], "refresh.rolling=true sends while layers compute"),
    ],
)
def test_a_method_that_cannot_be_compiled_says_why(typed: Typed, overrides: list[str], reason: str) -> None:
    config = effective(typed("engine=compiled", "topology=4gpu_split", *overrides))
    assert config.engine.name is Engine.eager
    assert reason in (method_of(config).obstacle(config.preset, config) or "")


@pytest.mark.parametrize("preset", ["balanced", "full_sync", "naive_patch", "reference"])
def test_a_method_that_can_be_compiled_is(typed: Typed, preset: str) -> None:
    assert effective(typed("engine=compiled", f"preset={preset}")).engine.name is Engine.compiled
