"""Every mistake is answered with what to type, before a process starts."""

from __future__ import annotations

import pytest
import torch
from diffusers import DDIMScheduler, DPMSolverMultistepScheduler, EulerDiscreteScheduler
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from composing import Typed
from otil_exp.cells.rules import MOST_STEPS, validate
from otil_exp.choices import Engine, GnSync, Scheduler
from otil_exp.config import MethodConfig
from otil_exp.methods.gn_sync import gn_sync_of
from otil_exp.methods.rooms import room_of
from otil_exp.models.architecture import SDXL
from otil_exp.rank_unet.engine_choice import choose_engine
from otil_exp.topology import single_rank

MISTAKES = [
    # 720 = 11.25 x 64: distrifuser makes silently wrong pictures of it on 2 slices
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
    (["preset.noise_gather=true"], "preset=balanced"),
    (["preset=balanced", "preset.noise_gather=false"], "preset=guide"),
    (["preset=balanced", "preset.cfg_repair=true"], "preset.cfg_repair=false"),
    (["preset=otil_context", "preset.gn_sync=fused"], "use preset.gn_sync=true"),
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
    (["preset=otil_context", "k.budget=1"], "k.budget=2 or more"),
    (["preset=otil_context", "height=192", "width=192", "preset.context.block_size=3"], "1, 2 or a multiple of 4"),
    (["preset=otil_context", "preset.context.every=0"], "preset.context.every=0"),
    (["preset=otil_context", "codec.quantizer=zip"], "none, fp8, int8"),
    (["preset=otil_context", "codec.residual=true"], "codec=residual"),
    (["preset=distrifusion", "codec.scope=all", "codec.quantizer=zip"], "int4, int2, int1"),
    (["refresh=never", "refresh.rolling=true"], "refresh=rolling10"),
    (["preset=otil_context", "refresh=rolling10"], "preset=balanced, or refresh.rolling=false"),
    (["preset=fold", "topology=2gpu_nosplit", "refresh=rolling10"], "preset=balanced, or refresh.rolling=false"),
    (["preset.transmit.block_size=3"], "block_size"),
    (["preset=tensor", "topology=3gpu_nosplit", "height=288"], "do not divide"),
    (["engine=cuda_graph"], "engine=eager"),
    (["engine.products=fp8", "preset=tensor"], "use engine.products=model_dtype"),
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
    (["preset=reference", "preset.name=mine"], "leave preset.name=reference"),
    (["preset=reference", "preset.halves_apart=true"], "leave preset.name=batch_split"),
    (["num_inference_steps=1000"], "use 1 to 999"),
    (["num_inference_steps=999", "scheduler=dpmpp"], "use 1 to 998"),
    (["seed=18446744073709551616"], "from 0 to 2**63 - 1"),  # 2**64
    (["seed=-1"], "from 0 to 2**63 - 1"),
    (["preset=otil_context", "height=128", "width=136", "topology=2gpu_nosplit"], "use width=128 or width=160"),
    (
        ["engine.sliced_decode=true", "preset=guide", "preset.cfg_repair=false"],
        "preset.cfg_repair=true or engine.sliced_decode=false",
    ),
    (["preset=naive_patch", "preset.split_scheme=alternate", "width=264"], "use width=256 or width=320"),
    (["model.architecture=unet3"], "use one of sdxl, sd15, sd21, shapes, files"),
    (["preset=tensor", "topology=6gpu_split", "height=288"], "over 3 ranks a batch half: the 64 channels"),
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


@pytest.mark.parametrize("mode", ["full_sync", "corrected_async_gn", "stale_gn", "sync_gn", "separate_gn"])
def test_distrifusion_takes_every_sync_mode(typed: Typed, mode: str) -> None:
    validate(typed("preset=distrifusion", f"preset.sync_mode={mode}"))


def test_an_unknown_sync_mode_is_hydras_own_error(typed: Typed) -> None:
    with pytest.raises(Exception, match="typo_gn"):
        typed("preset=distrifusion", "preset.sync_mode=typo_gn")


@pytest.mark.parametrize(
    ("preset", "setting"),
    [
        ("otil", "context.every=2"),
        ("otil", "sync_mode=full_sync"),
        ("tensor", "sync_mode=full_sync"),
        ("distrifusion", "stale=peers"),
        ("distrifusion", "split_scheme=row"),
        ("distrifusion", "noise_gather=false"),
        ("distrifusion", "gn_sync=true"),
        ("otil_context", "sync_mode=sync_gn"),
        ("otil_context", "noise_gather=false"),
        ("reference", "transmit.polling=false"),
    ],
)
def test_a_setting_of_another_family_is_hydras_own_error(typed: Typed, preset: str, setting: str) -> None:
    with pytest.raises(HydraException, match="Could not override 'preset"):
        typed(f"preset={preset}", f"preset.{setting}")


@pytest.mark.parametrize(("preset", "setting"), [("distrifusion", "sync_mode"), ("naive_patch", "split_scheme")])
def test_a_setting_that_a_method_cannot_do_without_is_not_null(typed: Typed, preset: str, setting: str) -> None:
    with pytest.raises((HydraException, OmegaConfBaseException), match=setting):
        typed(f"preset={preset}", f"preset.{setting}=null")


def test_a_preset_that_stands_on_no_family_is_told_how_to() -> None:
    with pytest.raises(ValueError, match=r"preset=mine stands on no family .*family/ROOM@_here_.* silent_layers"):
        room_of(MethodConfig(name="mine"))


@pytest.mark.parametrize("topology", ["2gpu_nosplit", "4gpu_split"])
def test_tensor_parallelism_takes_every_height(typed: Typed, topology: str) -> None:
    validate(typed("preset=tensor", f"topology={topology}", "height=136"))


def test_a_rank_without_a_gpu_refuses_graphs() -> None:
    with pytest.raises(ValueError, match="engine=cuda_graph needs a GPU, and this rank is on cpu: use engine=eager"):
        choose_engine(Engine.cuda_graph, single_rank(torch.device("cpu")), exchanges_in_layers=False)


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
    assert gn_sync_of(config.preset.gn_sync) is meaning


def test_a_compiled_engine_without_a_compiler_is_refused(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ValueError, match=r"no-such-compiler is not on the PATH.*engine=eager"):
        validate(typed("engine=compiled", "device=cpu"))


@pytest.mark.parametrize("scheduler", list(Scheduler))
def test_the_longest_schedule_is_the_longest_within_the_trained_noise_levels(scheduler: Scheduler) -> None:
    """As diffusers lays schedules out: levels fall strictly, from 999 at most."""
    kinds = {
        Scheduler.ddim: DDIMScheduler,
        Scheduler.euler: EulerDiscreteScheduler,
        Scheduler.dpmpp: DPMSolverMultistepScheduler,
    }

    def good(steps: int) -> bool:
        one = kinds[scheduler].from_config(SDXL.noise)
        one.set_timesteps(steps)
        levels = one.timesteps.double()
        return bool(levels[0] <= 999) and bool((levels[:-1] > levels[1:]).all())

    most = MOST_STEPS[scheduler]
    assert good(most)
    assert not good(most + 1)
