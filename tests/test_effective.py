"""Equal cells are one cell, different cells are not (DESIGN section 5)."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from composing import Compose, Typed
from otil_exp.cell import prepare
from otil_exp.effective import REFERENCE, effective


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
        ("distrifusion", ["codec=none", "codec=int8"]),
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


@pytest.mark.parametrize(
    ("preset", "matters"),
    [
        ("otil", ["k=k8", "k=k16", "k=all"]),
        ("otil", ["refresh=never", "refresh=every5", "refresh.period=45"]),
        ("otil", ["warmup_steps=1", "warmup_steps=7"]),
        ("otil", ["groupnorm=exact", "groupnorm=upstream"]),
        ("balanced", ["codec=none", "codec=int8", "codec=residual"]),
        ("otil_context", ["codec=none", "codec=fp8", "codec=residual", "k=k8", "preset.context.overlap=step"]),
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


def test_the_sweep_of_the_guide_has_eight_distinct_cells(composed: Compose) -> None:
    """Reference once, two GPUs once, four GPUs split and not for guide, otil and balanced: 1 + 1 + 6."""
    product = itertools.product(
        ["reference", "guide", "otil", "balanced"], ["1gpu", "2gpu_split", "4gpu_split", "4gpu_nosplit"]
    )
    assert len(set(signatures(composed, [[f"preset={p}", f"topology={t}"] for p, t in product]))) == 8


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
        prepare(
            composed(
                "device=cpu", "model=sdxl", "model.dtype=float32", "model.variant=null", f"model.source={tmp_path}"
            )
        )


def test_a_decoder_is_cut_only_where_pictures_are_decoded_by_several_ranks(typed: Typed) -> None:
    def cut(*overrides: str) -> bool:
        return effective(typed("preset=otil", "engine.sliced_decode=true", *overrides)).engine.sliced_decode

    assert cut("topology=4gpu_split")
    assert not cut("topology=1gpu")
    assert not cut("topology=4gpu_split", "mode=benchmark")
