"""The silent form, compiled by a second process: ranks find all of it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from diffusers import UNet2DConditionModel

from benchmarks.compile_time import without_kernels
from composing import Typed
from otil_exp import compile_ahead, graph_store
from otil_exp.cells.normal_form import effective
from otil_exp.compiled_cell import Compiled
from otil_exp.config import ExperimentConfig
from otil_exp.methods.rooms import step_of
from otil_exp.rank_unet.inputs import StepInputs, predict
from otil_exp.rank_unet.sliced import graph
from otil_exp.traffic import Traffic, TrafficCounter
from places import place
from ranks import run_ranks
from tiny_sdxl import TEXT_WIDTH, tiny_inputs

AHEAD = "from test_compile_ahead import in_a_hurry; in_a_hurry(); from otil_exp.compile_ahead import main; main()"
"""The other process, which compiles no C++: minutes. The store of graphs is the real one."""


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


def prepared_on_rank(rank: int, config: ExperimentConfig, folder: Path) -> tuple[Compiled, list[str]]:
    """What getting ready took, and what was warned of."""
    patch, log = pytest.MonkeyPatch(), list[str]()
    patch.setenv("MASTER_PORT", folder.name)  # of this job
    patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "machine"))
    patch.setenv(graph_store.VARIABLE, str(folder / "graphs"))
    patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    patch.setattr(compile_ahead, "has_room", lambda *_: True)
    patch.setattr(compile_ahead, "PROGRAM", ("-c", AHEAD))
    patch.setattr(graph.Graph, "_compile", silent_alone(graph.Graph._compile))
    patch.setattr(graph, "check_same", lambda *_: None)  # without kernels nothing is computed
    patch.setattr(logging.getLogger("otil_exp"), "warning", lambda words, *rest: log.append(words % rest))
    in_a_hurry()
    ranks = place(rank, split_batch=False)
    on_rank = step_of(config).build(config, ranks, unet_of(rank, folder), TrafficCounter())
    inputs = StepInputs(timestep=torch.ones(()), **tiny_inputs(height=64, width=64))
    with torch.no_grad(), compile_ahead.compiling(config, ranks, on_rank, inputs) as compiled:
        on_rank.prepare(inputs)
    return compiled, log


def unet_of(rank: int, folder: Path) -> UNet2DConditionModel:
    """As runs have it: from a folder, whose settings were once JSON."""
    least_unet().save_pretrained(folder / f"weights_{rank}")
    return UNet2DConditionModel.from_pretrained(folder / f"weights_{rank}").eval()


def silent_alone(compile_form: Callable[..., None]) -> Callable[..., None]:
    """The synchronous form is called as it is: compiling it shows nothing here, and takes as long."""

    def compile_or_call(self: graph.Graph, inputs: StepInputs) -> None:
        if self._ahead:
            compile_form(self, inputs)
        else:
            self._calls[inputs.sample.shape], self._sent[inputs.sample.shape] = predict, Traffic()

    return compile_or_call


@pytest.mark.ranks
def test_ranks_find_the_silent_form(typed: Typed, tmp_path: Path) -> None:
    """Two graphs: the UNet's, whose GroupNorms gather among the ranks and name their group, and its one block's."""
    config = effective(typed("preset=otil", "engine=compiled", "preset.gn_sync=true", "topology=2gpu_nosplit"))
    for rank in run_ranks(2, prepared_on_rank, config, tmp_path, timeout=400):
        assert rank == (Compiled(found=2, made=0, ahead=True), [])
