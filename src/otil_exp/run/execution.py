"""What every rank of a run does, from joining the others to leaving them."""

from __future__ import annotations

import gc
import logging
import os
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from typing import Any

import torch

from otil_exp.choices import Engine, Mode
from otil_exp.config import ExperimentConfig, to_plain
from otil_exp.methods.geometry import depth_of, is_reference, seams_of, topology_of, uses
from otil_exp.methods.rooms import method_of
from otil_exp.models.loading import Models
from otil_exp.phases import Phases
from otil_exp.phases import begin as begin_phases
from otil_exp.pipeline import build_pipeline
from otil_exp.prompts import Prompt, cut_short
from otil_exp.rank_log import continue_log
from otil_exp.run.attempts import with_last_ended, with_new_attempt
from otil_exp.run.benchmark import benchmark
from otil_exp.run.failure import note_failure
from otil_exp.run.generation import generate
from otil_exp.run.halt import Halt
from otil_exp.run.provenance import now, provenance
from otil_exp.run_folder.cell import Cell
from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.signature import FORM, picture_key, signature
from otil_exp.topology import RankContext, join, leave, meet
from otil_exp.tracking import tracked


def execute(runs: Sequence[Cell], hosted: bool, starting_since: float | None = None, halt: Halt | None = None) -> None:
    """Run cells one after the other on this rank: the entry point of every process of a job.

    runs: of one topology, device and collective time-out; processes, their group and the weights stay for all of them.
    hosted: others (torchrun, a scheduler) started the ranks, so nobody else notes which one failed.
    starting_since: when we began to start them, seconds since the epoch; None where others did.
    halt: called by every rank of every run between the ready pipeline and the first picture.
    Raises what went wrong on this rank; runs after that one are not begun.
    """
    ranks: RankContext | None = None
    models = Models()
    for number, run in enumerate(runs, start=1):
        continue_log(run.folder.logs, f"{run.effective.preset.name} ({run.folder.path.name})")
        with _failure_noted(run.folder) if hosted else nullcontext():
            if ranks is None:
                ranks = join(
                    topology_of(run.effective),
                    run.effective.device.kind.name,
                    run.effective.launch.collective_timeout_s,
                    sees_one_gpu=run.effective.engine.name is Engine.compiled,
                )
            phases = begin_phases() if ranks.is_main else None
            if phases is not None and starting_since is not None and number == 1:
                phases.note("starting ranks", time.time() - starting_since)
            last = number == len(runs)
            keep = not last and _weights_stay(run.effective) and _takes_whole_unet(runs[number].effective)
            _perform(ranks, run, models, phases, keep_weights=keep, halt=halt)
            meet()
            _clear(ranks)
            if last:
                leave()


def _weights_stay(effective: ExperimentConfig) -> bool:
    """Whether the weights are used as they were loaded. Beside those that were cut up, dropped, merged or laid out
    anew, the loaded ones would count as the run's memory, and do not where it is the last of its job."""
    engine = effective.engine
    return method_of(effective).shares_weights and engine.name is not Engine.compiled and not engine.sliced_decode


def _takes_whole_unet(effective: ExperimentConfig) -> bool:
    """Whether a run can begin with a UNet that is on its device. One that is cut by depth begins with none there, and
    one that was kept for it would count as its memory."""
    return depth_of(effective) is None


def _clear(ranks: RankContext) -> None:
    """Drop what a run leaves behind but the weights: the next one's memory is its own."""
    gc.collect()
    if ranks.device.type == "cuda":
        torch._C._cuda_clearCublasWorkspaces()  # up to 32 MiB a stream, for good
        torch.cuda.empty_cache()


def _perform(
    ranks: RankContext, run: Cell, models: Models, phases: Phases | None, *, keep_weights: bool, halt: Halt | None
) -> None:
    """Run one cell on ranks that have joined each other.

    models: where weights are found, and with keep_weights left, for another cell. phases: of this run, on rank 0.
    halt: as of `execute`.
    Raises what went wrong on this rank.
    """
    effective, folder = run.effective, run.folder
    if ranks.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(ranks.device)
    if ranks.is_main:
        _begin(folder, effective, run.composed, run.prompts)
    with tracked(effective, folder, ranks.is_main) as tracker:
        with build_pipeline(effective, ranks, models, keep_weights=keep_weights) as pipeline:
            if ranks.is_main:
                folder.update_record(
                    engine_runs_as=_runs_as(run, pipeline.runs_as), decoder_runs_as=pipeline.decoder_runs_as
                )
                if pipeline.compiled is not None:
                    folder.update_record(compiled=asdict(pipeline.compiled))
                if (warning := cut_short(run.prompts, pipeline.pipeline.tokenizer)) is not None:
                    logging.getLogger(__name__).warning(warning)
            if halt is not None:
                meet()  # also so that no rank leaves the GPUs a collective that waits for another
                halt(ranks)
            if effective.mode is Mode.generate:
                generate(pipeline, run.prompts, folder, tracker)
            else:
                benchmark(pipeline, run.prompts, folder)
        if phases is not None:
            seconds = {name: round(value, 1) for name, value in phases.seconds.items()}
            folder.finish(ended=now(), attempts=with_last_ended(folder.record), phases=seconds)


def _runs_as(run: Cell, engine: str) -> str:
    """Which engine the steps got, and why, where it is not the one that was asked for."""
    effective = run.effective
    if run.composed["engine"]["name"] == effective.engine.name.name:
        return engine
    return f"{engine}, because {method_of(effective).obstacle(effective.preset, effective)}"


@contextmanager
def _failure_noted(folder: RunFolder) -> Iterator[None]:
    """Note what fails on this rank, unless another one was first: who fails next may do so because of it."""
    try:
        yield
    except Exception as error:
        if folder.record.get("status") == "running":
            message = f"{type(error).__name__}: {error}"
            note_failure(folder, int(os.environ.get("RANK", 0)), message, traceback.format_exc())
        raise


def _begin(folder: RunFolder, effective: ExperimentConfig, composed: dict[str, Any], prompts: list[Prompt]) -> None:
    folder.write_config(composed)
    before, machine = folder.record, provenance()
    folder.update_record(
        status="running",
        signature=signature(effective, prompts),
        picture_key=picture_key(effective),
        method=effective.preset.name,
        form=FORM,
        is_reference=is_reference(effective),
        effective=_effective_facts(effective),
        engine=effective.engine.name.name,
        topology={"name": topology_of(effective).name, **asdict(effective.topology)},
        seams=asdict(seams_of(effective)),
        stages=None if (depth := depth_of(effective)) is None else asdict(depth),
        device=effective.device.kind.name,
        times_meaningless=_times_meaningless(effective),
        prompts=[{"index": prompt.index, "text": prompt.text, "seed": prompt.seed} for prompt in prompts],
        command=folder.planned.get("command"),
        started=before.get("started", now()),
        resumed=[*before.get("resumed", []), now()] if before else [],
        ended=None,
        failed_rank=None,
        error=None,
        traceback=None,
        attempts=with_new_attempt(before, machine),
        **machine,
    )


def _effective_facts(effective: ExperimentConfig) -> dict[str, Any]:
    """What the method really used, after normalisation."""
    plain = to_plain(effective)
    return {
        "k": int(effective.k.budget) or None,
        "refresh_period": effective.refresh.period,
        "refresh_rolling": effective.refresh.rolling,
        "warmup_steps": effective.warmup_steps if uses(effective, "warmup_steps") else None,
        "groupnorm": effective.groupnorm.name,
        "codec": plain["codec"],
        "cfg_repair": plain["preset"].get("cfg_repair", False),
        "preset": plain["preset"],
    }


def _times_meaningless(effective: ExperimentConfig) -> str | None:
    """Why the times of this run must not be compared, or None."""
    shared = {"shared_gpu": "one GPU", "cpu": "one CPU"}.get(effective.device.kind.name)
    return f"all ranks shared {shared}" if shared and effective.topology.world_size > 1 else None
