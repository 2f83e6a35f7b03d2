"""The text's keys and values on real ranks: each gets its own once a picture, from the one that has the projections."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
import torch
from torch import Tensor, nn
from torch import distributed as dist

from composing import Typed
from otil_exp.cells.normal_form import effective
from otil_exp.config import ExperimentConfig
from otil_exp.methods.staged_text import TextOfPicture
from otil_exp.pipeline import build_pipeline
from otil_exp.rank_unet import compiled_call
from otil_exp.stages.text import KeptOutput
from otil_exp.topology import RankContext, Topology, leave
from otil_exp.traffic import TrafficCounter
from pipelines import free_port, joined
from ranks import run_ranks
from staged import INNER, SHORT, VASE, one_step_late

pytestmark = pytest.mark.ranks

BALL = "a small green ball beside a tall orange cone"
WIDTHS = ((3, 2), (4,), ())
"""Outputs that the layers of three ranks read; the last has no attention."""


def layers() -> dict[KeptOutput, nn.Linear]:
    torch.manual_seed(0)
    return {KeptOutput(width): nn.Linear(5, width) for its in WIDTHS for width in its}


def context(rank: int, world_size: int, group: dist.ProcessGroup | None = None) -> RankContext:
    """A rank of one half that is the whole world."""
    topology = Topology(world_size=world_size, split_batch=False)
    return RankContext(topology=topology, rank=rank, device=torch.device("cpu"), batch_group=group)


@torch.no_grad()
def handing_out(rank: int) -> tuple[list[Tensor], list[int], list[bool]]:
    """Two pictures: what this rank's layers read in the second, what it sent in each, what stays where it was."""
    projections = layers()
    outputs = iter(projections)
    kept = [[next(outputs) for _ in its] for its in WIDTHS]
    text, traffic = TextOfPicture(projections, kept, context(rank, 3)), TrafficCounter()
    text.prepare(torch.zeros(2, 7, 5))
    places = [one.output.data_ptr() for one in kept[rank]]
    sent = []
    with traffic.installed():
        for picture in (1, 2):
            text.hand_out(torch.full((2, 7, 5), float(picture)))
            sent.append(traffic.take().bytes_sent)
    text.finish()
    read = [one(torch.empty(0)).clone() for one in kept[rank]]
    return read, sent, [one.output.data_ptr() == place for one, place in zip(kept[rank], places, strict=True)]


@torch.no_grad()
def test_each_rank_reads_what_its_projections_give() -> None:
    expected = [linear(torch.full((2, 7, 5), 2.0)) for linear in layers().values()]
    results = run_ranks(3, handing_out)
    read = [one for its, _, _ in results for one in its]
    assert len(read) == 3
    assert all(torch.equal(a, b) for a, b in zip(read, expected, strict=True))
    assert all(stays for _, _, its in results for stays in its)
    # 2 x 7 tokens of 4 features in fp32 to the second rank, nothing to the third.
    assert [sent for _, sent, _ in results] == [[2 * 7 * 4 * 4] * 2, [0, 0], [0, 0]]


@torch.no_grad()
def waiting(rank: int) -> str:
    """Rank 1 waits for the text of a picture in a group with two seconds' time-out; rank 0 makes none."""
    group = dist.new_group([0, 1], timeout=timedelta(seconds=2))
    one = KeptOutput(4)
    text = TextOfPicture({one: nn.Linear(5, 4)}, [[], [one]], context(rank, 2, group))
    dist.barrier()  # of all ranks, with their longer time-out: both get to the group's first message at once
    text.prepare(torch.zeros(1, 7, 5))
    if rank == 0:
        time.sleep(6)
        return ""
    with pytest.raises(TimeoutError) as error:
        text.hand_out(torch.zeros(1, 7, 5))
    return str(error.value)


def test_a_text_that_does_not_come_ends_in_the_bound_and_names_the_rank() -> None:
    _, said = run_ranks(2, waiting)
    assert "rank 0 did not send its message within" in said
    assert "launch.collective_timeout_s" in said


def two_pictures(
    rank: int, port: str, topology: tuple[int, bool], configs: list[ExperimentConfig]
) -> list[tuple[Tensor, list[int]]]:
    """Of each config the second picture of one pipeline, and what this rank sent in each step of it."""
    compiled_call.BACKEND = "eager"
    ranks = joined(rank, topology, port)
    found = []
    for config in configs:
        with build_pipeline(config, ranks) as pipeline, torch.compiler.set_stance("fail_on_recompile"):
            pipeline(BALL, 0, decode=False)
            generated = pipeline(VASE, 0, decode=False)
        found.append((generated.latents, [step.traffic.bytes_sent for step in generated.steps]))
    leave()
    return found


def test_the_next_picture_has_its_own_text_and_all_is_compiled_before_the_first(typed: Typed) -> None:
    """Steps that wait for each other, then steps that are late, in every engine."""
    cell = ("preset=fold", *SHORT, f"preset.cut=[{INNER}]", "topology=4gpu_split")
    cells = [effective(typed(*cell, f"engine={engine}")) for engine in ("eager", "compiled")]
    by_rank = run_ranks(4, two_pictures, free_port(), (4, True), cells, timeout=500)
    expected = one_step_late(order=1)
    for (called, sent), (compiled, compiled_sent) in by_rank:
        assert (called - expected).abs().max() < 1e-5
        assert (compiled - expected).abs().max() < 1e-4 * expected.abs().max()
        assert sent == compiled_sent
