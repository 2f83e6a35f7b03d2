"""The fold on real ranks: exact where it waits, as old as it says where it does not, and what it refuses."""

from __future__ import annotations

import functools

import pytest
import torch

from composing import Typed
from otil_exp.cells.normal_form import effective
from otil_exp.cells.rules import validate
from otil_exp.exchange.timetable import fold_timetable
from otil_exp.methods.rooms import method_of
from otil_exp.methods.staged_rules import stages_in_words
from otil_exp.models.architecture import SDXL
from otil_exp.stages.cut import fold, named_cuts
from otil_exp.stages.tape import tape
from pipelines import run_pipelines
from staged import INNER, SHORT, VASE, furthest, one_step_late, reference

CUT = f"preset.cut=[{INNER}]"


@pytest.mark.ranks
def test_two_stages(typed: Typed) -> None:
    """Exact where every step waits; else what the definition says; every rank ends with the latent of rank 0."""
    cell = functools.partial(typed, "preset=fold", *SHORT, CUT, "topology=2gpu_nosplit")
    waiting, refreshing, plain, line = run_pipelines(
        [cell("warmup_steps=6"), cell("refresh.period=1"), cell("preset.order=0"), cell()], VASE
    )
    assert furthest(waiting, reference()) < 1e-5
    assert furthest(refreshing, reference()) < 1e-5
    assert furthest(plain, one_step_late(0)) < 1e-5
    assert furthest(line, one_step_late(1)) < 1e-5
    assert furthest(plain, reference()) > 1e-3

    # 128 x 4 x 4 fp32 down and back, two samples: 16 KiB each way; the final latent is broadcast, 4 x 16 x 16.
    outer, inner = ([step.traffic.bytes_sent for step in result.steps] for result in line)
    # With the first step go keys and values of 32 tokens for the three blocks inside, 128 wide, two samples.
    text = 3 * 2 * 2 * 32 * 128 * 4
    assert outer == [16384 + text] + [16384] * 5 + [4096]  # nothing is begun in the last step
    assert inner == [16384] * 3 + [0] + [16384] * 3


@pytest.mark.ranks
def test_three_nested_stages_and_a_cut_inside_a_transformer_wait_exactly(typed: Typed) -> None:
    cell = functools.partial(typed, "preset=fold", *SHORT, "topology=3gpu_nosplit")
    waiting, running, fitted = run_pipelines(
        [cell("warmup_steps=6"), cell("preset.every=2"), cell("preset.gain=fit", "warmup_steps=3")], VASE
    )
    assert furthest(waiting, reference()) < 1e-5
    for results in (running, fitted):
        assert 1e-4 < furthest(results, reference()) < 5
        assert all(torch.equal(result.latents, results[0].latents) for result in results)


@pytest.mark.ranks
def test_halves_of_the_batch_apart(typed: Typed) -> None:
    cell = functools.partial(typed, "preset=fold", *SHORT, CUT, "topology=4gpu_split")
    waiting, line = run_pipelines([cell("warmup_steps=6"), cell()], VASE)
    assert furthest(waiting, reference()) < 1e-5
    assert furthest(line, one_step_late(1)) < 1e-5


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ("topology=2gpu_split",),
            "a half of the batch has one rank.*use topology=2gpu_nosplit or topology=4gpu_split",
        ),
        (("preset.order=3",), r"preset.order=3: use 0 \(as it is\), 1 \(a line\)"),
        (("preset.every=0",), "preset.every=0: .*use 1 to num_inference_steps=50"),
        (("preset.gain=much",), "preset.gain=much: use a number such as 0.5, age .* or fit"),
        (("preset.cut=[down0.down/up0.attn0]",), "would cross ranks; use down0.down/"),
        (("preset.cut=[nowhere/up0.attn0]",), "does not exist: use OUTSIDE/INSIDE, for example"),
        ((f"{CUT[:-1]},{CUT.split('[')[1]}",), "2 stages meet at 1 cut; use preset.cut="),
        (("topology=3gpu_nosplit", CUT), "3 stages meet at 2 cuts; use preset.cut="),
        (("topology=8gpu_nosplit", "topology.world_size=12"), "12 stages: this UNet can be cut into 2 to 9"),
        (("height=132",), "height=132 is not a multiple of 8"),
    ],
)
def test_what_contradicts_is_refused(typed: Typed, overrides: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        validate(typed("preset=fold", "topology=2gpu_nosplit", *overrides))


def test_the_record_says_where_it_is_cut(typed: Typed) -> None:
    config = effective(typed("preset=fold", "topology=2gpu_nosplit"))
    assert config.preset.cut == ["down0.down/up1.attn0"]
    assert effective(typed("preset=fold", "topology=2gpu_nosplit", "preset.cut=[down0.down/up1.attn0]")) == config
    sdxl = effective(typed("preset=fold", "topology=4gpu_split", "model=sdxl_random"))
    assert sdxl.preset.cut == ["down1.down/up0.attn1.4"]


def test_the_record_has_shares_and_ages_in_words() -> None:
    units = tape(SDXL.unet, 128, 128)
    segments = fold(units, named_cuts(units, ["down1.down/up0.attn1.4"]))
    said = stages_in_words(units, segments, lambda steps: fold_timetable(steps, 2))
    assert said == "2 stages of 49.7, 50.3 % of the FLOPs, cut after down1.down, up0.attn1.4; up to 1 step old"
    said = stages_in_words(units, segments, lambda steps: fold_timetable(steps, 2, every=2))
    assert said.endswith("up to 3 steps old")


def test_equal_cells_are_one(typed: Typed) -> None:
    def form(*overrides: str):
        return effective(typed("preset=fold", "topology=2gpu_nosplit", *overrides))

    assert form("preset.gain=1") == form("preset.gain=1.0") != form()
    assert form("preset.order=0", "preset.gain=0.7") == form("preset.order=0")
    assert form("k.budget=3", "codec=fp8") == form()
    assert effective(typed("preset=fold", "topology=1gpu")).topology.world_size == 1


def test_it_has_no_seams_and_no_rule_on_the_height(typed: Typed) -> None:
    config = typed("preset=fold", "topology=2gpu_nosplit", "height=136", "width=200")
    validate(config)
    assert method_of(config).slicing(config.preset, config).rows == 1
