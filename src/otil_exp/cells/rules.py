"""Rules that tie several values of a config together, checked while composing: each says what to type instead."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import PurePath

from otil_exp.cells.machine_rules import check_machine
from otil_exp.cells.refuse import refuse
from otil_exp.choices import Mode, Scheduler, TrackerKind
from otil_exp.config import ExperimentConfig
from otil_exp.exchange import QUANTIZERS
from otil_exp.fp8_gpus import check_model_widths
from otil_exp.methods.geometry import slicing_of, topology_of, uses
from otil_exp.methods.rooms import method_of
from otil_exp.methods.topology_advice import typed
from otil_exp.metrics.checks import check_metrics
from otil_exp.models.architecture import architecture_of
from otil_exp.topology import Topology

MOST_STEPS = {Scheduler.ddim: 999, Scheduler.euler: 999, Scheduler.dpmpp: 998}
"""Longest schedule: the models were trained on noise levels 0 to 999, and with more steps the first one is beyond them
(their schedulers have steps_offset=1; dpmpp lays out one step more)."""

LARGEST_SEED = 2**63 - 1
"""torch.Generator takes no larger one."""

MOST_GUIDANCE = 1000.0
"""Far beyond any picture that is one, and far below what half precision holds."""

MOST_PIXELS = 178_956_970
"""Of a picture: Pillow takes a file of more for an attack, and would not read it back."""

MOST_RANKS = 1024
"""More is a slip of the finger, and would take the machine down before it fails."""

LONGEST_S = 1e7
"""Of a bound on time, seconds (four months): far below what torch's own counters hold."""

NO_PROJECT = "/\\#?%:"
"""What W&B takes in no name of a project, nor more than 128 characters."""


def validate(config: ExperimentConfig) -> None:
    """Raise ValueError, with what to type, if values of the config contradict each other."""
    topology = topology_of(config)
    architecture_of(config.model)
    _check_name(config)
    _check_ranks(config)
    _check_guidance(config, topology)
    _check_steps(config)
    _check_size(config)
    _check_decode(config, topology)
    _check_codec(config)
    check_model_widths(config)
    method_of(config).check(config.preset, config)
    check_machine(config, topology)
    check_metrics(config.metrics)
    _check_benchmark(config)
    _check_launch(config)
    _check_tracker(config)


def _check_name(config: ExperimentConfig) -> None:
    alone = PurePath(config.name).parts == (config.name,) and config.name not in (".", "..")
    refuse([(not alone, f"name={config.name}: use the name of one folder below output_dir, such as name=sweep")])


def _check_ranks(config: ExperimentConfig) -> None:
    ranks = config.topology.world_size
    refuse([(ranks > MOST_RANKS, f"topology.world_size={ranks}: use 1 to {MOST_RANKS}, such as topology=4gpu_split")])


def _check_codec(config: ExperimentConfig) -> None:
    """A name that does not exist is one for methods without a codec, too."""
    quantizer, known = config.codec.quantizer, ", ".join(QUANTIZERS)
    refuse([(quantizer not in QUANTIZERS, f"codec.quantizer={quantizer}: use one of {known}")])


def _check_guidance(config: ExperimentConfig, topology: Topology) -> None:
    scale = config.guidance_scale
    refuse(
        [
            (
                not (1 <= scale <= MOST_GUIDANCE),
                f"guidance_scale={scale}: use 1 (no guidance) to {MOST_GUIDANCE:g}, such as guidance_scale=5",
            ),
            (
                scale == 1 and topology.split_batch,
                "guidance_scale=1 turns guidance off, so there are no two halves to split: use "
                f"{typed(replace(topology, split_batch=False))} or guidance_scale=5",
            ),
        ]
    )


def _check_steps(config: ExperimentConfig) -> None:
    steps, warmup, period = config.num_inference_steps, config.warmup_steps, config.refresh.period
    most = MOST_STEPS[config.scheduler]
    refuse(
        [
            (
                not 1 <= steps <= most,
                f"num_inference_steps={steps} with scheduler={config.scheduler.name}: use 1 to {most}, such as "
                "num_inference_steps=50",
            ),
            (warmup < 0, f"warmup_steps={warmup}: steps 0..warmup_steps are synchronous; use 0 or more"),
            (
                warmup >= steps and uses(config, "warmup_steps"),
                f"warmup_steps={warmup} with num_inference_steps={steps}: steps 0..warmup_steps are to be "
                f"among them; use "
                f"warmup_steps={max(steps - 1, 0)} or less, or num_inference_steps={warmup + 1} or more",
            ),
            (period < 0, f"refresh.period={period}: use 0 (never) or a number of steps, such as refresh=every10"),
            (
                config.refresh.rolling and period == 0 and method_of(config).rolls,
                "refresh.rolling=true with refresh.period=0: say in how many steps every layer has its turn, such as "
                "refresh=rolling10, or use refresh.rolling=false",
            ),
            (
                config.refresh.rolling and uses(config, "refresh") and not method_of(config).rolls,
                "refresh.rolling=true: only layers that are silent otherwise can take turns, and these are not; use "
                "preset=otil or preset=balanced, or refresh.rolling=false",
            ),
            (
                not 0 <= config.seed <= LARGEST_SEED,
                f"seed={config.seed}: use a number from 0 to 2**63 - 1, such as seed=0",
            ),
        ]
    )


def _check_size(config: ExperimentConfig) -> None:
    """Slices have whole rows (columns) on every level of the UNet; every picture has whole latent pixels."""
    architecture, slicing = architecture_of(config.model), slicing_of(config)
    for name, value, slices in (("height", config.height, slicing.rows), ("width", config.width, slicing.columns)):
        unit = architecture.slice_unit * slices if slices > 1 else architecture.vae_factor
        over = (
            f"does not divide over {slices} slices (needs a multiple of {unit})"
            if slices > 1
            else f"is not a multiple of {unit}"
        )
        below, above = value // unit * unit, (value // unit + 1) * unit
        near = f"{name}={max(above, unit)}" if below <= 0 else f"{name}={below} or {name}={above}"
        refuse([(value <= 0 or value % unit != 0, f"{name}={value} {over}: use {near}")])
    pixels = config.height * config.width
    sentence = f"height={config.height} width={config.width}: a picture has at most {MOST_PIXELS} pixels"
    refuse([(pixels > MOST_PIXELS, f"{sentence}; use such as height=8192 width=8192")])


def _check_decode(config: ExperimentConfig, topology: Topology) -> None:
    unit = architecture_of(config.model).vae_factor * topology.world_size
    below = config.height // unit * unit
    refuse(
        [
            (
                config.engine.sliced_decode and config.height % unit != 0,
                f"engine.sliced_decode=true with height={config.height}: it does not divide over {topology.world_size} "
                f"ranks (needs a multiple of {unit}): use height={max(below, unit)} or engine.sliced_decode=false",
            )
        ]
    )


def _check_tracker(config: ExperimentConfig) -> None:
    tracker, wanted = config.tracker, config.tracker.name is not TrackerKind.none
    bounds = {name: getattr(tracker, name) for name in ("init_timeout_s", "finish_timeout_s")}
    no_project = len(tracker.project) > 128 or any(character in tracker.project for character in NO_PROJECT)
    refuse(
        [
            (
                wanted and find_spec("wandb") is None,
                f"tracker={config.tracker.name.name} needs wandb: pip install 'otil-exp[wandb]', or use tracker=none",
            ),
            (
                wanted and no_project,
                f"tracker.project={tracker.project}: W&B takes at most 128 characters, and none of {NO_PROJECT}; use "
                "such as tracker.project=otil_exp",
            ),
            (tracker.pictures < 0, f"tracker.pictures={tracker.pictures}: use 0 (none) or more"),
            *(
                (
                    not (0 < bound <= LONGEST_S),
                    f"tracker.{name}={bound}: use a number of seconds above 0, such as tracker.{name}=60",
                )
                for name, bound in bounds.items()
            ),
        ]
    )


def _check_benchmark(config: ExperimentConfig) -> None:
    benchmark = config.benchmark
    refuse(
        [
            (
                config.mode is Mode.benchmark and benchmark.repeats <= 2 * benchmark.drop_extremes,
                f"benchmark.repeats={benchmark.repeats} with benchmark.drop_extremes={benchmark.drop_extremes}: "
                f"nothing would be left; use benchmark.repeats={2 * benchmark.drop_extremes + 1} or more",
            ),
            (benchmark.warmup_images < 0, "benchmark.warmup_images must be 0 or more"),
            (benchmark.drop_extremes < 0, "benchmark.drop_extremes must be 0 or more"),
        ]
    )


def _check_launch(config: ExperimentConfig) -> None:
    bound = config.launch.collective_timeout_s
    refuse(
        [
            (
                not (0 < bound <= LONGEST_S),
                f"launch.collective_timeout_s={bound}: use seconds above 0 and up to {LONGEST_S:.0f}, such as 300",
            )
        ]
    )
