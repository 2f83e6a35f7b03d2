"""A UNet compiled: one graph, and two more for each shape of its transformer blocks."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from torch import nn

from otil_exp.rank_unet.inputs import StepInputs, predict
from otil_exp.rank_unet.kernel_choice import best_kernels
from otil_exp.rank_unet.sliced import blocks
from otil_exp.topology import RankContext
from otil_exp.traffic import Traffic, TrafficCounter

BACKEND = "inductor"
"""What torch.compile makes of a graph; tests, which look at graphs and not at speed, use one that compiles no C++."""


class Graph:
    """Calls a UNet through torch.compile, which has all its graphs after the first call for each shape of the sample.

    Later calls must have the same strides and types (a graph for others would be compiled, which the engines avoid by
    copying inputs to fixed places). There is one shape, but for a naive_patch that cuts rows and columns in turn.
    Collectives inside are counted at each call, though they call no Python.
    """

    def __init__(
        self, unet: nn.Module, ranks: RankContext, traffic: TrafficCounter, *, form: str, communicates: bool
    ) -> None:
        """form: of the step, in a word. communicates: whether the UNet has collectives inside, so that no rank can run
        it alone."""
        self._unet, self._ranks, self._traffic, self._communicates = unet, ranks, traffic, communicates
        compiled = partial(torch.compile, fullgraph=True, dynamic=False, backend=BACKEND)
        blocks.compile_apart(unet, form, compiled)
        self._compiled = compiled(unet)
        self._sent: dict[torch.Size, Traffic] = {}

    def __call__(self, inputs: StepInputs) -> torch.Tensor:
        if inputs.sample.shape not in self._sent:
            self._compile(inputs)
        self._traffic.add(self._sent[inputs.sample.shape])
        return predict(self._compiled, inputs)

    def _compile(self, inputs: StepInputs) -> None:
        with self._traffic.installed(), self._traffic.recording() as sent:
            predict(self._unet, inputs)
        self._sent[inputs.sample.shape] = sent
        room = torch._dynamo.config.patch(recompile_limit=blocks.GRAPHS)
        with best_kernels(), room, self._turn():
            predict(self._compiled, inputs)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One rank of a machine first: it compiles, the others then find what it compiled in the cache.

        Only where the graphs are the same code: on a GPU that is cuda:0 for every rank. A graph with collectives no
        rank can run alone. Not a barrier: waiting must not count against collective_timeout_s.
        """
        on_cpu = self._ranks.device.type == "cpu"
        if self._communicates or not (on_cpu or (self._ranks.topology.world_size > 1 and _sees_one_gpu())):
            yield
            return
        with Path(tempfile.gettempdir(), _lock_name(self._ranks.device)).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # somebody compiles: those who wait go on together
                fcntl.flock(lock, fcntl.LOCK_EX if on_cpu else fcntl.LOCK_SH)
            yield


def _sees_one_gpu() -> bool:
    return torch.cuda.device_count() == 1


def _lock_name(device: torch.device) -> str:
    """On a CPU all ranks of a user share the cores; on GPUs only those of one job have the same graphs."""
    job = "" if device.type == "cpu" else f"-{os.environ.get('MASTER_PORT', '')}"
    return f"otil_exp-compile-{os.getuid()}{job}.lock"
