"""Rules that tie several values of a config together, checked while composing: each says what to type instead."""

from __future__ import annotations

import math
import os
from importlib.util import find_spec
from pathlib import PurePath
from shutil import which

from otil_exp.choices import DeviceKind, Dtype, Engine, GnSync, Halos, Mode, Parallelism, SyncMode, TrackerKind
from otil_exp.config import VAE_FACTOR, ExperimentConfig, PresetConfig, TransmitConfig, gn_sync_of
from otil_exp.exchange import SCORES, BlockGrid, Codec, check_blocks, resolve_budget, split_budget
from otil_exp.metrics.checks import check_metrics
from otil_exp.topology import Topology

REFERENCE_NAME = "reference"
"""Name of the one method that is one process; runs are compared with it by this name."""

ROWS_PER_SLICE = 32
"""Pixel rows a slice is a multiple of: 8 pixels a latent row, 4 latent rows through two halvings (facts: silently
wrong pictures otherwise, 720x1280 on 2 slices among them)."""


def validate(config: ExperimentConfig) -> None:
    """Raise ValueError, with what to type, if values of the config contradict each other."""
    topology = topology_of(config)
    _check_name(config)
    _check_preset(config)
    _check_guidance(config)
    _check_steps(config, topology)
    _check_size(config, topology)
    _check_blocks(config, topology)
    _check_decode(config, topology)
    _check_tensor(config, topology)
    _check_device(config, topology)
    check_metrics(config.metrics)
    _check_benchmark(config)
    _check_tracker(config)


def topology_of(config: ExperimentConfig) -> Topology:
    """The topology a config asks for; one rank for the reference, whatever topology= says."""
    if config.preset.parallelism is Parallelism.none or config.topology.world_size == 1:
        return Topology(world_size=1, split_batch=False)
    return Topology(world_size=config.topology.world_size, split_batch=config.topology.split_batch)


def grid_of(config: ExperimentConfig, topology: Topology) -> BlockGrid:
    """The blocks of one slice's latent rows, of a method that selects some."""
    selection = config.preset.transmit or config.preset.context
    assert selection is not None
    return BlockGrid(
        rows=config.height // VAE_FACTOR // topology.slices,
        width=config.width // VAE_FACTOR,
        block_size=selection.block_size,
    )


def _check_name(config: ExperimentConfig) -> None:
    alone = PurePath(config.name).parts == (config.name,) and config.name not in (".", "..")
    reference = config.preset.parallelism is Parallelism.none
    _refuse(
        [
            (not alone, f"name={config.name}: use the name of one folder below output_dir, such as name=sweep"),
            (
                (config.preset.name == REFERENCE_NAME) != reference,
                f"preset.name={config.preset.name} with preset.parallelism={config.preset.parallelism.name}: "
                f"{REFERENCE_NAME} is the one process that others are compared with; use preset={REFERENCE_NAME}",
            ),
        ]
    )


def _check_preset(config: ExperimentConfig) -> None:
    preset = config.preset
    gn_syncs = [choice.value for choice in GnSync]
    _refuse(
        [
            (
                str(preset.gn_sync).lower() not in gn_syncs,
                f"preset.gn_sync={preset.gn_sync}: use true (exact), fused (one collective a step) or false",
            )
        ]
    )
    gn_sync = gn_sync_of(preset)
    patch, naive = preset.parallelism is Parallelism.patch, preset.parallelism is Parallelism.naive_patch
    modes = ", ".join(mode.name for mode in SyncMode)
    rules = [
        (patch and preset.sync_mode is None, f"preset.sync_mode is missing: a patch method needs one of {modes}"),
        (
            not patch and preset.sync_mode is not None,
            f"preset.sync_mode={_name(preset.sync_mode)} with preset.parallelism={preset.parallelism.name}: only "
            "patch methods exchange layer context; use preset.sync_mode=null",
        ),
        (naive and preset.split_scheme is None, "preset.split_scheme is missing: use row, col or alternate"),
        (
            not naive and preset.split_scheme is not None,
            f"preset.split_scheme={_name(preset.split_scheme)} with preset.parallelism={preset.parallelism.name}: only "
            "naive_patch cuts more than one way; use preset.split_scheme=null or preset=naive_patch",
        ),
        (
            preset.stale is not None and preset.parallelism is not Parallelism.tensor,
            f"preset.stale={_name(preset.stale)} with preset.parallelism={preset.parallelism.name}: only tensor "
            "parallelism adds up partial sums; use preset.stale=null or preset=tensor_stale",
        ),
        (
            not preset.noise_gather and preset.sync_mode is not SyncMode.no_sync,
            "preset.noise_gather=false: only a method with silent layers can leave the noise prediction ungathered; "
            "use preset.noise_gather=true or preset.sync_mode=no_sync",
        ),
        (
            preset.noise_gather and preset.transmit is not None,
            "preset.transmit with preset.noise_gather=true: nothing is left to select when all is gathered; "
            "use preset.noise_gather=false or preset=balanced",
        ),
        (
            not preset.noise_gather and preset.transmit is None,
            "preset.noise_gather=false without preset.transmit: nothing would ever reach the other ranks; use "
            "preset=guide or preset.noise_gather=true",
        ),
        (
            preset.cfg_repair and preset.noise_gather,
            "preset.cfg_repair=true with preset.noise_gather=true: the gather brings both halves already; use "
            "preset.cfg_repair=false",
        ),
        (
            gn_sync is not GnSync.off and preset.sync_mode is not SyncMode.no_sync,
            f"preset.gn_sync={gn_sync} with preset.sync_mode={_name(preset.sync_mode)}: it keeps GroupNorm in step "
            "while the other layers are silent; use preset.sync_mode=no_sync, or sync_gn for DistriFusion's way",
        ),
        (
            gn_sync is GnSync.fused and preset.context is not None,
            "preset.gn_sync=fused with preset.context: where layers get context block by block, GroupNorm stays exact; "
            "use preset.gn_sync=true",
        ),
        (
            preset.context is not None and (preset.sync_mode is not SyncMode.no_sync or not preset.noise_gather),
            f"preset.context with preset.sync_mode={_name(preset.sync_mode)} and preset.noise_gather="
            f"{str(preset.noise_gather).lower()}: it stands in for what silent layers do not exchange, and the noise "
            "prediction is gathered; use preset.sync_mode=no_sync and preset.noise_gather=true, or preset=otil_context",
        ),
    ]
    _refuse(rules)
    _check_selection("transmit", preset.transmit)
    _check_selection("context", preset.context)
    every = 1 if preset.context is None else preset.context.every
    _refuse([(every < 1, f"preset.context.every={every}: use 1 (every step) or more")])


def _check_selection(name: str, selection: TransmitConfig | None) -> None:
    if selection is None:
        return
    _refuse(
        [
            (
                selection.score not in SCORES,
                f"preset.{name}.score={selection.score}: use one of {', '.join(SCORES)}",
            ),
            (
                selection.score == "round_robin" and not selection.polling,
                f"preset.{name}.score=round_robin with preset.{name}.polling=false: it would send the same blocks for "
                f"ever; use preset.{name}.polling=true",
            ),
        ]
    )


def _check_guidance(config: ExperimentConfig) -> None:
    scale, topology = config.guidance_scale, config.topology
    spread = config.preset.parallelism is not Parallelism.none and topology.world_size > 1
    _refuse(
        [
            (
                not (1 <= scale < math.inf),
                f"guidance_scale={scale}: use 1 (no guidance) or more, such as guidance_scale=5",
            ),
            (
                scale == 1 and topology.split_batch and spread,
                "guidance_scale=1 turns guidance off, so there are no two halves to split: use "
                f"topology={topology.world_size}gpu_nosplit or guidance_scale=5",
            ),
        ]
    )


def warms_up(preset: PresetConfig, topology: Topology) -> bool:
    """Whether a method has steps that differ from its first ones: else it ignores warmup_steps."""
    late_layers = preset.parallelism is Parallelism.patch and preset.sync_mode is not SyncMode.full_sync
    return topology.slices > 1 and (late_layers or preset.stale is not None)


def _check_steps(config: ExperimentConfig, topology: Topology) -> None:
    steps, warmup, period = config.num_inference_steps, config.warmup_steps, config.refresh.period
    _refuse(
        [
            (steps < 1, f"num_inference_steps={steps}: use 1 or more, such as num_inference_steps=50"),
            (warmup < 0, f"warmup_steps={warmup}: steps 0..warmup_steps are synchronous; use 0 or more"),
            (
                warmup >= steps and warms_up(config.preset, topology),
                f"warmup_steps={warmup} with num_inference_steps={steps}: steps 0..warmup_steps are to be "
                f"among them; use "
                f"warmup_steps={max(steps - 1, 0)} or less, or num_inference_steps={warmup + 1} or more",
            ),
            (period < 0, f"refresh.period={period}: use 0 (never) or a number of steps, such as refresh=every10"),
        ]
    )


def _check_size(config: ExperimentConfig, topology: Topology) -> None:
    """height % (32 * slices) == 0 where rows are cut and layers meet; every picture is a multiple of 8."""
    preset = config.preset
    cut_rows = preset.parallelism is Parallelism.patch or _name(preset.split_scheme) in ("row", "alternate")
    cut_columns = _name(preset.split_scheme) in ("col", "alternate")
    for name, value, cut in (("height", config.height, cut_rows), ("width", config.width, cut_columns)):
        slices = topology.slices if cut and preset.parallelism is not Parallelism.tensor else 1
        unit = ROWS_PER_SLICE * slices if slices > 1 else VAE_FACTOR
        over = (
            f"does not divide over {slices} slices (needs a multiple of {unit})"
            if slices > 1
            else "is not a multiple of 8"
        )
        below, above = value // unit * unit, (value // unit + 1) * unit
        near = f"{name}={max(above, unit)}" if below <= 0 else f"{name}={below} or {name}={above}"
        _refuse([(value <= 0 or value % unit != 0, f"{name}={value} {over}: use {near}")])


def _check_decode(config: ExperimentConfig, topology: Topology) -> None:
    unit = VAE_FACTOR * topology.world_size
    below = config.height // unit * unit
    _refuse(
        [
            (
                config.engine.sliced_decode and config.height % unit != 0,
                f"engine.sliced_decode=true with height={config.height}: it does not divide over {topology.world_size} "
                f"ranks (needs a multiple of {unit}): use height={max(below, unit)} or engine.sliced_decode=false",
            )
        ]
    )


def _check_blocks(config: ExperimentConfig, topology: Topology) -> None:
    if config.preset.noise_gather:
        Codec(config.codec.quantizer, config.codec.residual)
    selects = config.preset.transmit is not None or config.preset.context is not None
    if not selects or topology.slices == 1:
        return
    grid = grid_of(config, topology)
    k = resolve_budget(config.k.budget, grid.count)
    if config.preset.context is not None:
        check_blocks(grid)
    if config.preset.context is not None and config.preset.context.halos is Halos.chosen:
        split_budget(grid, k)


def _check_tensor(config: ExperimentConfig, topology: Topology) -> None:
    channels = 64 if config.model.name == "shapes" else 320
    _refuse(
        [
            (
                config.preset.parallelism is Parallelism.tensor and channels % topology.slices != 0,
                f"preset=tensor over {topology.slices} ranks a batch half: the {channels} channels of model="
                f"{config.model.name} do not divide; use a topology of 1, 2, 4 or 8 ranks a half",
            )
        ]
    )


def _check_device(config: ExperimentConfig, topology: Topology) -> None:
    kind, captured = config.device.kind, config.engine.name is Engine.cuda_graph
    compiled, compiler = config.engine.name is Engine.compiled, os.environ.get("CXX", "g++")
    _refuse(
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
                config.device.threads is not None and config.device.threads < 1,
                f"device.threads={config.device.threads}: use 1 or more, or null to share the cores out",
            ),
        ]
    )


def _check_tracker(config: ExperimentConfig) -> None:
    wanted = config.tracker.name is not TrackerKind.none
    _refuse(
        [
            (
                wanted and find_spec("wandb") is None,
                f"tracker={config.tracker.name.name} needs wandb: pip install 'otil-exp[wandb]', or use tracker=none",
            )
        ]
    )


def _check_benchmark(config: ExperimentConfig) -> None:
    benchmark = config.benchmark
    _refuse(
        [
            (
                config.mode is Mode.benchmark and benchmark.repeats <= 2 * benchmark.drop_extremes,
                f"benchmark.repeats={benchmark.repeats} with benchmark.drop_extremes={benchmark.drop_extremes}: "
                f"nothing would be left; use benchmark.repeats={2 * benchmark.drop_extremes + 1} or more",
            ),
            (benchmark.warmup_images < 0, "benchmark.warmup_images must be 0 or more"),
            (benchmark.drop_extremes < 0, "benchmark.drop_extremes must be 0 or more"),
            (
                not (0 < config.launch.collective_timeout_s < math.inf),
                "launch.collective_timeout_s must be above 0, in seconds",
            ),
        ]
    )


def _name(value: object) -> str:
    return "null" if value is None else str(getattr(value, "name", value))


def _refuse(rules: list[tuple[bool, str]]) -> None:
    """Raise the sentence of the first rule that is broken."""
    for broken, sentence in rules:
        if broken:
            raise ValueError(sentence)
