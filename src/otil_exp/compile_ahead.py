"""A second process that compiles the silent form of a UNet while a rank compiles the synchronous one.

Either takes most of a minute of one core, and ranks need both. The other process has a rank's place, with nobody in the
others, and weights that are not set. What it compiles lies in the store of graphs, where all ranks of that half of the
batch on this machine find it.

    python -m otil_exp.compile_ahead LOCK < REQUEST
"""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO, Any

import torch
from diffusers import UNet2DConditionModel

from otil_exp.choices import Products
from otil_exp.compiled_cell import Compiled, CompiledCell
from otil_exp.config import ExperimentConfig
from otil_exp.fake_peers import among_fake_peers
from otil_exp.launch.lifetime import die_with_parent
from otil_exp.methods.geometry import topology_of
from otil_exp.methods.rooms import step_of
from otil_exp.rank_unet.inputs import StepInputs
from otil_exp.rank_unet.on_rank import LayersOnRank, OnRank
from otil_exp.rank_unet.products import Fp8Products
from otil_exp.rank_unet.sliced.compile_turn import compiled_ahead, looking_ahead, say_done, take_ahead
from otil_exp.topology import RankContext
from otil_exp.traffic import TrafficCounter

ROOM = 4
"""How many times the UNet's weights must be free on the GPU: the other process has weights, context and a step, too."""

PROGRAM = ("-m", "otil_exp.compile_ahead")
"""What Python runs in the other process."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the other process is told."""

    config: ExperimentConfig
    """An effective one."""

    rank: int
    device: torch.device
    unet: dict[str, Any]
    """Settings of the whole UNet."""

    dtype: torch.dtype
    inputs: StepInputs
    """Of a step of the whole batch and picture, on the host."""

    threads: int
    parent: int
    """Process id of the rank."""


@contextmanager
def compiling(config: ExperimentConfig, ranks: RankContext, on_rank: OnRank, inputs: StepInputs) -> Iterator[Compiled]:
    """Within it the ranks get their graphs: out of the store, and, of cells that are new, with the help of a second
    process. What was compiled is filled in at its end."""
    cell = CompiledCell(config, ranks)
    with cell.used() as compiled, ExitStack() as meanwhile:
        if cell.is_new:
            meanwhile.enter_context(compiling_ahead(config, ranks, on_rank, inputs, compiled))
        yield compiled


@contextmanager
def compiling_ahead(
    config: ExperimentConfig, ranks: RankContext, on_rank: OnRank, inputs: StepInputs, compiled: Compiled
) -> Iterator[None]:
    """Within it the ranks make their graphs, and those of silent steps are compiled by another process meanwhile, where
    there is such a form and room for it. One rank of a half on a machine starts it.

    config: an effective one. inputs: of a step of the whole batch and picture. compiled: gets told whether it was done.
    What goes wrong with the other process is logged, and its graphs are compiled by the ranks.
    """
    if not (on_rank.has_silent_form and has_room(ranks.device, on_rank)):
        yield
        return
    with looking_ahead():
        with ExitStack() as meanwhile:
            try:
                if (lock := take_ahead(ranks)) is not None:
                    meanwhile.enter_context(_running(_request(config, ranks, on_rank, inputs), lock, ranks))
            except OSError as error:  # a temporary folder that is full or read-only, too many processes
                _warn(str(error))
            yield
        compiled.ahead = compiled_ahead(ranks)


@contextmanager
def _running(request: Request, lock: IO[bytes], ranks: RankContext) -> Iterator[None]:
    """Within it the other process runs. At its end that has ended, or is killed: it has nothing on the GPU any more."""
    with lock, TemporaryFile() as said:
        process = _started(request, lock, said)
        lock.close()  # the process alone has it from here on
        try:
            yield
        finally:
            status = process.poll()
            process.kill()  # nothing where it has ended
            process.wait()
        if not compiled_ahead(ranks):
            said.seek(0)
            lines = [line for line in said.read().decode(errors="replace").splitlines() if line.strip()]
            ended = "it was not done" if status is None else f"its process ended with {status}"
            _warn(lines[-1] if lines else ended)


def _warn(why: str) -> None:
    _log.warning("nothing was compiled ahead, so this took longer: %s", why)


def has_room(device: torch.device, on_rank: OnRank) -> bool:
    """Whether a second process fits beside a rank. On a CPU, whose cores the ranks share, it does not."""
    if device.type == "cpu":
        return False
    free, _ = torch.cuda.mem_get_info(device)
    return free >= ROOM * sum(weight.nbytes for weight in on_rank.unet.parameters())


def _request(config: ExperimentConfig, ranks: RankContext, on_rank: OnRank, inputs: StepInputs) -> Request:
    return Request(
        config=config,
        rank=ranks.rank,
        device=ranks.device,
        unet=dict(on_rank.unet.config),
        dtype=on_rank.unet.dtype,
        inputs=inputs.to(torch.device("cpu")),
        threads=torch.get_num_threads(),
        parent=os.getpid(),
    )


def _started(request: Request, lock: IO[bytes], said: IO[bytes]) -> subprocess.Popen[bytes]:
    """The process, which inherits the lock. said: gets what it prints."""
    with TemporaryFile() as asked:
        pickle.dump(request, asked)
        asked.seek(0)
        return subprocess.Popen(
            [sys.executable, *PROGRAM, str(lock.fileno())],
            stdin=asked,
            stdout=said,
            stderr=said,
            pass_fds=[lock.fileno()],
        )


def compile_silent_form(request: Request) -> None:
    """Compile what a silent step of that rank runs."""
    config, device = request.config, request.device
    torch.set_num_threads(request.threads)
    ranks = among_fake_peers(topology_of(config), device, rank=request.rank)
    with torch.device("meta"):
        unet = UNet2DConditionModel.from_config(request.unet)
    torch.nn.Module.to(unet, request.dtype)  # diffusers' own warns of layers that want float32, and there are none
    unet = unet.to_empty(device=device).eval()
    on_rank = step_of(config).build(config, ranks, unet, TrafficCounter())
    assert isinstance(on_rank, LayersOnRank)
    if config.engine.products is Products.fp8:
        Fp8Products(on_rank.unet)
    with torch.no_grad(), CompiledCell(config, ranks).used():  # as ranks do: graphs without are others
        on_rank.compile_last_kind(request.inputs.to(device))


def main() -> None:
    """The other process."""
    with os.fdopen(int(sys.argv[1]), "r+b") as lock:
        os.set_inheritable(lock.fileno(), False)  # Inductor's workers outlive the work
        request: Request = pickle.load(sys.stdin.buffer)
        die_with_parent(request.parent)
        if request.device.index is not None:
            torch.cuda.set_device(request.device)
        # Its turns are not the ranks', which wait for it.
        os.environ["MASTER_PORT"] = f"ahead-{os.environ.get('MASTER_PORT', '')}-{request.rank}"
        compile_silent_form(request)
        say_done(lock)


if __name__ == "__main__":
    main()
