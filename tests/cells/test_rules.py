"""Every mistake is answered with what to type, before a process starts."""

from __future__ import annotations

import pytest

from composing import Typed
from otil_exp.cells.rules import validate
from otil_exp.choices import GnSync
from otil_exp.config import gn_sync_of

MISTAKES = [
    # 720 = 11.25 x 64: silently wrong pictures in distrifuser on 2 slices (facts/distrifuser.md section 6)
    (
        ["height=720", "width=1280"],
        "height=720 does not divide over 2 slices (needs a multiple of 64): use height=704 or height=768",
    ),
    (["height=832", "topology=8gpu_nosplit"], "over 8 slices (needs a multiple of 256): use height=768 or height=1024"),
    # 768 / 8 slices = 12 latent rows, which 8 x 8 blocks do not tile
    (["model=sdxl_random", "model.dtype=float32", "height=768", "topology=8gpu_nosplit"], "block_size=1, 2 or 4"),
    (["width=260"], "width=260 is not a multiple of 8: use width=256 or width=264"),
    (["height=0"], "use height=64"),
    (["topology.world_size=3"], "topology.world_size=4 or topology.split_batch=false"),
    (["k.budget=300"], "128"),
    (["k.budget=0"], "k.budget=0"),
    (["k.budget=2.5"], "k.budget=2.5"),
    (["warmup_steps=50"], "warmup_steps=49 or less"),
    (["num_inference_steps=0"], "num_inference_steps=50"),
    (["refresh.period=-1"], "refresh.period=-1"),
    (["guidance_scale=1"], "topology=4gpu_nosplit or guidance_scale=5"),
    (["guidance_scale=0.5"], "guidance_scale=0.5"),
    (["preset.sync_mode=null"], "corrected_async_gn"),
    (["preset=tensor", "preset.sync_mode=full_sync"], "preset.sync_mode=null"),
    (["preset=distrifusion", "preset.stale=peers"], "preset=tensor_stale"),
    (["preset=distrifusion", "preset.split_scheme=row"], "preset=naive_patch"),
    (["preset=naive_patch", "preset.split_scheme=null"], "row, col or alternate"),
    (["preset=distrifusion", "preset.noise_gather=false"], "preset.sync_mode=no_sync"),
    (["preset.noise_gather=true"], "preset=balanced"),
    (["preset=balanced", "preset.noise_gather=false"], "preset=guide"),
    (["preset=balanced", "preset.cfg_repair=true"], "preset.cfg_repair=false"),
    (["preset=distrifusion", "preset.gn_sync=true"], "or sync_gn for"),
    (["preset=distrifusion", "preset.gn_sync=fused"], "or sync_gn for"),
    # columns are cut, and the decoder would cut 40 latent rows over 6 ranks
    (
        [
            "engine.sliced_decode=true",
            "height=320",
            "topology=6gpu_nosplit",
            "preset=naive_patch",
            "preset.split_scheme=col",
            "width=384",
        ],
        "use height=288 or engine.sliced_decode=false",
    ),
    (["preset.gn_sync=exact"], "use true (exact), fused (one collective a step) or false"),
    (["preset.transmit.score=loudness"], "cosine"),
    (["preset.transmit.score=round_robin", "preset.transmit.polling=false"], "preset.transmit.polling=true"),
    (["preset=otil_context", "preset.context.score=loudness"], "preset.context.score=loudness: use one of cosine, l2"),
    (["preset=otil_context", "preset.sync_mode=sync_gn", "preset.gn_sync=false"], "preset=otil_context"),
    (["preset=otil_context", "preset.noise_gather=false"], "preset.noise_gather=true"),
    (["preset=otil_context", "k.budget=1"], "k.budget=2 or more"),
    (["preset=otil_context", "height=192", "width=192", "preset.context.block_size=3"], "1, 2 or a multiple of 4"),
    (["preset=otil_context", "preset.context.every=0"], "preset.context.every=0"),
    (["preset=otil_context", "codec.quantizer=zip"], "none, fp8, int8"),
    (["preset=otil_context", "codec.residual=true"], "codec=residual"),
    (["preset.transmit.block_size=3"], "block_size"),
    (["preset=tensor", "topology=3gpu_nosplit", "height=288"], "do not divide"),
    (["engine=cuda_graph"], "engine=eager"),
    (["model=sdxl"], "model.dtype=float32"),
    (["device.threads=0"], "device.threads=0"),
    (["mode=benchmark", "benchmark.repeats=2"], "benchmark.repeats=3"),
    (["launch.collective_timeout_s=0"], "launch.collective_timeout_s"),
    (["launch.collective_timeout_s=nan"], "launch.collective_timeout_s"),
    (["guidance_scale=nan"], "guidance_scale=5"),
    (["guidance_scale=inf"], "guidance_scale=5"),
    (["height=-32"], "use height=64"),
    (["name=''"], "name=sweep"),
    (["name=a/b"], "name=sweep"),
    (["name=.."], "name=sweep"),
    (["preset.name=reference"], "use preset=reference"),
    (["preset=reference", "preset.name=mine"], "use preset=reference"),
]


@pytest.mark.parametrize(
    ("overrides", "sentence"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_a_mistake_says_what_to_type(typed: Typed, overrides: list[str], sentence: str) -> None:
    with pytest.raises(ValueError, match=".") as refused:
        validate(typed(*overrides))
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    "preset",
    [
        *("reference", "naive_patch", "full_sync", "distrifusion", "tensor", "tensor_stale"),
        *("guide", "otil", "otil_context", "balanced"),
    ],
)
@pytest.mark.parametrize("topology", ["1gpu", "2gpu_split", "2gpu_nosplit", "4gpu_split", "4gpu_nosplit", "8gpu_split"])
def test_every_preset_composes_on_every_topology(typed: Typed, preset: str, topology: str) -> None:
    validate(typed(f"preset={preset}", f"topology={topology}"))


@pytest.mark.parametrize("topology", ["3gpu_nosplit", "6gpu_split"])
def test_three_slices_need_a_multiple_of_96_rows(typed: Typed, topology: str) -> None:
    validate(typed(f"topology={topology}", "height=288"))
    with pytest.raises(ValueError, match=r"height=192 or height=288"):
        validate(typed(f"topology={topology}", "height=256"))


@pytest.mark.parametrize("mode", ["full_sync", "corrected_async_gn", "stale_gn", "sync_gn", "separate_gn", "no_sync"])
def test_distrifusion_takes_every_sync_mode(typed: Typed, mode: str) -> None:
    validate(typed("preset=distrifusion", f"preset.sync_mode={mode}"))


def test_an_unknown_sync_mode_is_hydras_own_error(typed: Typed) -> None:
    with pytest.raises(Exception, match="typo_gn"):
        typed("preset=distrifusion", "preset.sync_mode=typo_gn")


@pytest.mark.parametrize("preset", ["reference", "naive_patch", "full_sync", "tensor"])
def test_a_method_without_warm_up_may_have_fewer_steps(typed: Typed, preset: str) -> None:
    validate(typed(f"preset={preset}", "warmup_steps=4", "num_inference_steps=2"))


def test_the_reference_ignores_what_the_topology_could_refuse(typed: Typed) -> None:
    validate(typed("preset=reference", "topology=4gpu_split", "guidance_scale=1", "height=200"))


def test_a_tracker_that_is_not_installed_is_refused(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otil_exp.cells.rules.find_spec", lambda _: None)
    validate(typed("tracker=none"))
    with pytest.raises(ValueError, match="pip install 'otil-exp"):
        validate(typed("tracker=wandb_offline"))


@pytest.mark.parametrize(
    ("typed_value", "meaning"), [("true", GnSync.exact), ("false", GnSync.off), ("fused", GnSync.fused)]
)
def test_gn_sync_is_what_a_user_types(typed: Typed, typed_value: str, meaning: GnSync) -> None:
    config = typed("preset=otil", f"preset.gn_sync={typed_value}")
    validate(config)
    assert gn_sync_of(config.preset) is meaning


def test_a_compiled_engine_without_a_compiler_is_refused(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ValueError, match=r"no-such-compiler is not on the PATH.*engine=eager"):
        validate(typed("engine=compiled", "device=cpu"))
