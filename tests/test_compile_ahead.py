"""The silent form, compiled by a second process: ranks find all of it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from diffusers import UNet2DConditionModel
from torch._dynamo.utils import counters

from benchmarks.compile_time import without_kernels
from composing import Typed
from otil_exp import compile_ahead
from otil_exp.cells.normal_form import effective
from otil_exp.compiled_cell import Compiled
from otil_exp.config import ExperimentConfig
from otil_exp.methods.rooms import step_of
from otil_exp.rank_unet.inputs import StepInputs
from otil_exp.rank_unet.sliced import graph
from otil_exp.traffic import TrafficCounter
from places import place
from ranks import run_ranks
from tiny_sdxl import TEXT_WIDTH, tiny_inputs

AHEAD = "from test_compile_ahead import in_a_hurry; in_a_hurry(); from otil_exp.compile_ahead import main; main()"
"""The other process, which compiles no C++: minutes. PyTorch's cache is the real one."""


class Made(NamedTuple):
    """Of a rank."""

    found: int
    """Graphs of the silent form that were in PyTorch's cache."""

    made: int
    """Those that were not."""

    ahead: bool
    logged: str


def in_a_hurry() -> None:
    """Compile no C++, look for no operations that have better ones, and ask no compiler which vectors the CPU has."""
    without_kernels()
    torch._inductor.config.pattern_matcher = False
    torch._inductor.cpu_vec_isa.valid_vec_isa_list = list


def least_unet() -> UNet2DConditionModel:
    """One ResNet and one transformer, in the way up: Inductor takes seconds a layer."""
    return UNet2DConditionModel(
        sample_size=8,
        down_block_types=("DownBlock2D",),
        mid_block_type=None,
        up_block_types=("CrossAttnUpBlock2D",),
        block_out_channels=(8,),
        layers_per_block=0,
        norm_num_groups=4,
        cross_attention_dim=2 * TEXT_WIDTH,
        attention_head_dim=4,
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=8 * 6 + TEXT_WIDTH,
    ).eval()


def prepared_on_rank(rank: int, config: ExperimentConfig, folder: Path) -> Made:
    patch, log = pytest.MonkeyPatch(), list[str]()
    patch.setenv("MASTER_PORT", folder.name)  # of this job
    patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder))
    patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    patch.setattr(compile_ahead, "has_room", lambda *_: True)
    patch.setattr(compile_ahead, "PROGRAM", ("-c", AHEAD))
    patch.setattr(graph.Graph, "_compile", silent_alone(graph.Graph._compile))
    patch.setattr(logging.getLogger(compile_ahead.__name__), "warning", lambda words, *rest: log.append(words % rest))
    in_a_hurry()
    ranks, compiled = place(rank, split_batch=False), Compiled()
    on_rank = step_of(config).build(config, ranks, least_unet(), TrafficCounter())
    inputs = StepInputs(timestep=torch.ones(()), **tiny_inputs(height=64, width=64))
    with torch.no_grad(), compile_ahead.compiling_ahead(config, ranks, on_rank, inputs, compiled):
        on_rank.prepare(inputs)
    found = counters["inductor"]
    return Made(found["fxgraph_cache_hit"], found["fxgraph_cache_miss"], compiled.ahead, "\n".join(log))


def silent_alone(compile_form: Callable[..., None]) -> Callable[..., None]:
    """The synchronous form is called as it is: compiling it shows nothing here, and takes as long."""

    def compile_or_call(self: graph.Graph, inputs: StepInputs) -> None:
        if not self._ahead:
            self._compiled = self._unet
            torch._dynamo.config.disable = True
        compile_form(self, inputs)
        torch._dynamo.config.disable = False

    return compile_or_call


@pytest.mark.ranks
def test_ranks_find_the_silent_form(typed: Typed, tmp_path: Path) -> None:
    """Two graphs: the UNet's, whose GroupNorms gather among the ranks and name their group, and its one block's."""
    config = effective(typed("preset=otil", "engine=compiled", "preset.gn_sync=true", "topology=2gpu_nosplit"))
    for rank in run_ranks(2, prepared_on_rank, config, tmp_path, timeout=400):
        assert rank == Made(found=2, made=0, ahead=True, logged="")
