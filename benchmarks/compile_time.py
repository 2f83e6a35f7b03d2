"""How long the host works on compiling a step of SDXL's UNet before any kernel is compiled.

    python -m benchmarks.compile_time [--one-graph] [--synchronous]

The UNet of a rank of two slices, weights uninitialised, of a small picture, on the CPU;
Dynamo and Inductor do all they do but hand kernels to a C++ compiler. Peers are torch's fake process group.
--one-graph: all transformer blocks in the UNet's graph, instead of a graph for each shape of a transformer.
--synchronous: that form of the step, not the silent one. Takes minutes of one core and 6 GiB.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any

import torch
import torch._inductor.config
from diffusers import UNet2DConditionModel
from torch import distributed as dist
from torch._dynamo.callback import on_compile_end, on_compile_start
from torch._inductor.async_compile import AsyncCompile
from torch.testing._internal.distributed.fake_pg import FakeStore

from otil_exp.choices import GnSync
from otil_exp.models.architecture import SDXL
from otil_exp.rank_unet.inputs import StepInputs, predict
from otil_exp.rank_unet.sliced.blocks import compile_apart, group_blocks
from otil_exp.rank_unet.sliced.slices import Slices
from otil_exp.rank_unet.sliced.tree import silent_copy, slice_layers

SIDE = 32
"""Of the latent."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one-graph", action="store_true")
    parser.add_argument("--synchronous", action="store_true")
    options = parser.parse_args()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    unet, inputs = sliced_unet(), step_inputs()
    if not options.one_graph:
        group_blocks(unet)
    predict(unet, inputs)  # makes the context that a silent step reads
    form = "synchronous" if options.synchronous else "silent"
    stepped = unet if options.synchronous else silent_copy(unet)
    torch._inductor.config.fx_graph_cache = False
    torch._functorch.config.enable_autograd_cache = False
    without_kernels()
    graphs = seconds_of_graphs()
    compiled = partial(torch.compile, fullgraph=True, dynamic=False)
    compile_apart(stepped, form, compiled)
    predict(compiled(stepped), inputs)
    each = ", ".join(f"{seconds:.0f}" for seconds in graphs)
    print(f"{form} step{', one graph' * options.one_graph}: {sum(graphs):.0f} s of CPU, by graph {each}")


class _NoKernel:
    """In the place of a kernel that is being compiled, and of the kernel, which leaves its results as they are."""

    def result(self) -> _NoKernel:
        return self

    def __call__(self, *arguments: Any) -> None:
        return None


def seconds_of_graphs() -> list[float]:
    """Will have, for each graph that is compiled, the CPU time that this process had for it."""
    found, began = list[float](), list[float]()
    on_compile_start(lambda _: began.append(time.process_time()))
    on_compile_end(lambda _: found.append(time.process_time() - began.pop()))
    return found


def without_kernels() -> None:
    """Let this process compile no C++."""
    AsyncCompile.cpp_pybinding = lambda self, *arguments, **options: _NoKernel()


def sliced_unet() -> UNet2DConditionModel:
    torch.set_default_dtype(torch.float16)
    with torch.device("meta"):
        unet = UNet2DConditionModel(**SDXL.unet)
    torch.set_default_dtype(torch.float32)
    unet = unet.to_empty(device="cpu").eval().requires_grad_(False)
    slice_layers(unet, Slices(index=0, count=2, group=None, device=torch.device("cpu")), GnSync.off)
    return unet


def step_inputs() -> StepInputs:
    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(*shape, dtype=torch.float16)

    return StepInputs(
        sample=zeros(1, 4, SIDE // 2 + 2, SIDE),
        timestep=torch.ones(1),
        encoder_hidden_states=zeros(1, 77, 2048),
        added_cond_kwargs={"text_embeds": zeros(1, 1280), "time_ids": zeros(1, 6)},
    )


if __name__ == "__main__":
    with torch.no_grad():
        main()
