"""Rules on where and how ranks compute: what this machine has, and what its devices and links can do."""

from __future__ import annotations

import os
from importlib.util import find_spec
from shutil import which

from otil_exp.cells.refuse import refuse
from otil_exp.choices import DeviceKind, Dtype, Engine, TrackerKind
from otil_exp.config import ExperimentConfig
from otil_exp.launch.narrow_link import NarrowLink, obstacle
from otil_exp.topology import Topology

MOST_THREADS = 1024
"""Of a rank: more is a slip of the finger, and would take the machine down before it fails."""

SLOWEST_MBIT, FASTEST_MBIT = 0.1, 1e6
"""Of a limited link, Mb/s: a step of small pictures takes a minute at the one, and ranks of one machine send less than
the other through sockets."""

LONGEST_DELAY_MS = 1e4
"""Of a limited link: a slip of the finger beyond it, as every message would wait so long."""


def check_machine(config: ExperimentConfig, topology: Topology) -> None:
    """Raise ValueError, with what to type, if the ranks cannot compute so on this machine."""
    _check_device(config, topology)
    _check_link(config, topology)


def _check_device(config: ExperimentConfig, topology: Topology) -> None:
    kind, captured = config.device.kind, config.engine.name is Engine.cuda_graph
    compiled, compiler = config.engine.name is Engine.compiled, os.environ.get("CXX", "g++")
    refuse(
        [
            (
                compiled and kind is DeviceKind.cpu and which(compiler) is None,
                f"engine=compiled with device=cpu needs a C++ compiler, and {compiler} is not on the PATH: "
                "install one (apt-get install g++), name yours in CXX, or use engine=eager",
            ),
            (
                compiled and kind is not DeviceKind.cpu and find_spec("triton") is None,
                "engine=compiled needs triton, which comes with PyTorch for CUDA on Linux and is not installed: "
                "use engine=cuda_graph or engine=eager",
            ),
            (
                captured and kind is DeviceKind.cpu,
                "engine=cuda_graph with device=cpu: there is no GPU to capture on; use engine=eager",
            ),
            (
                captured and kind is DeviceKind.shared_gpu and topology.world_size > 1,
                "engine=cuda_graph with device=shared_gpu: gloo's collectives cannot be captured; use engine=eager",
            ),
            (
                kind is DeviceKind.cpu and config.model.dtype is Dtype.float16,
                "model.dtype=float16 with device=cpu: half precision on a CPU is emulated; use model.dtype=float32",
            ),
            (
                config.device.threads is not None and not 1 <= config.device.threads <= MOST_THREADS,
                f"device.threads={config.device.threads}: use 1 to {MOST_THREADS}, or null to share the cores out",
            ),
        ]
    )


def _check_link(config: ExperimentConfig, topology: Topology) -> None:
    device = config.device
    mbit, delay = device.link_mbit, device.link_delay_ms
    refuse(
        [
            (
                mbit != 0 and not SLOWEST_MBIT <= mbit <= FASTEST_MBIT,
                f"device.link_mbit={mbit}: use megabits a second, such as device.link_mbit=1000, from {SLOWEST_MBIT} "
                f"to {FASTEST_MBIT:.0f}, or 0 for no limit",
            ),
            (
                not 0 <= delay <= LONGEST_DELAY_MS,
                f"device.link_delay_ms={delay}: use milliseconds, such as device.link_delay_ms=1, at most "
                f"{LONGEST_DELAY_MS:.0f}, or 0",
            ),
            (
                delay > 0 and mbit == 0,
                f"device.link_delay_ms={delay} delays a link that device.link_mbit limits: use device.link_mbit=1000, "
                "or device.link_delay_ms=0",
            ),
            (
                mbit > 0 and device.kind is DeviceKind.cuda,
                f"device.link_mbit={mbit} with device=cuda: NCCL's ranks of one machine use no network; use "
                "device=cpu, device=shared_gpu or device.link_mbit=0",
            ),
            (
                mbit > 0 and config.tracker.name is TrackerKind.wandb,
                f"device.link_mbit={mbit} with tracker=wandb: such ranks reach each other and nothing else; use "
                "tracker=wandb_offline",
            ),
        ]
    )
    if mbit and topology.world_size > 1 and (why := obstacle(NarrowLink(mbit, delay))):
        raise ValueError(f"device.link_mbit={mbit} is not possible here: {why}; use device.link_mbit=0")
