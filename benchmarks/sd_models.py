"""Stable Diffusion 1.5 at 512 x 512 and 2.1 at 768 x 768 with random weights: what a step and a picture take.

    python -m benchmarks.sd_models OUT [--small] [--parts one_gpu,two_gpus] [--minutes 9.5]

one_gpu: rank 0 of 4 ranks with the batch split, peers played by torch's fake process group: compute alone. two_gpus,
where there are two: mode=benchmark of two ranks, the batch not split, and of one; one grid an engine, whose ranks
start once. Each figure is a line of OUT/figures.jsonl, OUT/table.md the tables of all of them. A figure that is there
is not measured again, so that another call goes on where --minutes ended this one. --small: small networks and
pictures, on the CPU where there is no GPU, to try the script.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from hydra import compose, initialize_config_dir

from benchmarks.sd_tables import tables
from otil_exp.cells.prepare import prepare
from otil_exp.conf_tree import conf_folder
from otil_exp.config import ExperimentConfig
from otil_exp.fake_peers import among_fake_peers
from otil_exp.models.architecture import PUBLISHED, Architecture
from otil_exp.models.random_weights import random_pipeline
from otil_exp.pipeline import build_pipeline
from otil_exp.rank_unet import compiled_call
from otil_exp.run_folder.cell import Cell
from otil_exp.schema import register_schema
from otil_exp.topology import Topology

GPU = torch.cuda.is_available()
MODELS = ("sd15", "sd21")
PRESETS = ("reference", "distrifusion", "guide", "otil", "tensor")
STAGED = ("fold", "step_reuse")
"""Their ranks do not do alike, so that rank 0's own work is not a step: on real ranks alone."""
ENGINES = ("cuda_graph", "compiled") if GPU else ("eager", "compiled")
COMPILABLE = {"one_gpu": ("reference", "guide", "otil"), "two_gpus": ("reference", "otil", "fold")}
"""distrifuser's other layers are replayed as CUDA graphs whatever is asked for (Method.obstacle); on two GPUs those
that ten minutes have room for."""

SHORTEST_S, ENDING_S = 45, 20
"""Less time than the first is not begun a case in; the second is left for ranks to end in."""

OFTEN = ("mode=benchmark", "benchmark.warmup_images=1", "benchmark.repeats=5", "launch.collective_timeout_s=120")

PARTS = {"one_gpu": "4gpu_split", "two_gpus": "2gpu_nosplit"}
"""Part -> topology."""


@dataclass(frozen=True)
class Case:
    """What is measured."""

    part: str
    model: str
    preset: str
    engine: str

    @property
    def topology(self) -> str:
        return "1gpu" if self.preset == "reference" else PARTS[self.part]


Measured = tuple[Case, dict[str, Any] | None]
"""A case, and its figures, if it has any."""


def cases(parts: list[str]) -> Iterator[Case]:
    for part in parts:
        for model in MODELS:
            for engine in ENGINES:
                called = (*PRESETS, *STAGED) if part == "two_gpus" else PRESETS
                presets = COMPILABLE[part] if engine == "compiled" else called
                if part == "two_gpus" and engine == "compiled" and not GPU:
                    continue  # where the script is tried: minutes of a C++ compiler
                yield from (Case(part, model, preset, engine) for preset in presets)


def main() -> int:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.case is not None:  # a process of its own for each case
        print(json.dumps(rank_alone(options.case, options.out, options.small)))
        return 0
    figures = _figures(options.out)
    left = [case for case in cases(options.parts) if not any(asdict(case).items() <= one.items() for one in figures)]
    failed, end = 0, time.monotonic() + 60 * options.minutes
    while left and end - time.monotonic() > SHORTEST_S:
        together = _measured_together(left)
        left = [case for case in left if case not in together]
        for case, measured in MEASURES[together[0].part](together, options, end - time.monotonic()):
            if measured is None:
                failed += 1
                continue
            figures.append(asdict(case) | measured)
            print(json.dumps(figures[-1]), flush=True)
            with (options.out / "figures.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(figures[-1]) + "\n")
            (options.out / "table.md").write_text("\n".join(tables(figures)) + "\n", encoding="utf-8")
    print(*tables(figures), f"{failed} cases have no figure, {len(left)} are left for another call", sep="\n")
    return 1 if failed or left else 0


def _measured_together(left: list[Case]) -> list[Case]:
    """The next case, with those whose ranks start with its own."""
    first = left[0]
    if first.part == "one_gpu":
        return [first]
    return [case for case in left if (case.part, case.engine) == (first.part, first.engine)]


def rank_alone(case: Case, out: Path, small: bool) -> dict[str, Any]:
    """Rank 0's own work: milliseconds of a picture without text encoder and VAE, and of its steps."""
    if small:
        compiled_call.BACKEND = "eager"  # of engine=compiled: no compiler is needed to try the script
    config = composed(case, out, small)
    topology = Topology(**asdict(config.topology))
    device = torch.device("cuda" if GPU else "cpu")
    start = time.perf_counter()
    with build_pipeline(config, among_fake_peers(topology, device)) as pipeline:
        ready_s = time.perf_counter() - start
        made = [pipeline("a cat", 0, decode=False) for _ in range(4)][1:]  # the first one warms up
        best = min(made, key=lambda generated: sum(step.ms for step in generated.steps))
        return {
            "topology": topology.name,
            "side": config.height,
            "runs_as": pipeline.runs_as,
            "ready_s": ready_s,
            "steps_ms": sum(step.ms for step in best.steps),
            **medians([(step.step.kind, step.ms, step.traffic.bytes_sent) for step in best.steps]),
            "peak_mib": torch.cuda.max_memory_allocated() / 2**20 if GPU else None,
            "gpu": torch.cuda.get_device_name() if GPU else None,
            "torch": torch.__version__,
        }


def medians(steps: list[tuple[str, float, int]]) -> dict[str, float]:
    """Of milliseconds and bytes by kind of step; a step is (kind, milliseconds, bytes)."""
    found: dict[str, float] = {}
    for kind in ("warmup", "steady"):
        of_kind = [(ms, sent) for name, ms, sent in steps if name == kind]
        if of_kind:
            found[f"{kind}_ms"], found[f"{kind}_sent"] = (median(values) for values in zip(*of_kind, strict=True))
    return found


def in_processes(cases: list[Case], options: argparse.Namespace, seconds: float) -> Iterator[Measured]:
    """Each case in a process of its own: one process group, and memory that no other case left behind."""
    for case in cases:
        command = [sys.executable, "-m", "benchmarks.sd_models", str(options.out), "--case", json.dumps(asdict(case))]
        command += ["--small"] * options.small
        try:
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=seconds)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            traceback.print_exc()
            yield case, None
        else:
            yield case, json.loads(done.stdout.splitlines()[-1])


def real_ranks(cases: list[Case], options: argparse.Namespace, seconds: float) -> Iterator[Measured]:
    """What `otil-exp -m mode=benchmark` measures of each; what was finished counts, whatever became of the rest."""
    for model in MODELS if options.small else ("",):  # small models are folders of their own: a grid each
        some = [case for case in cases if model in case.model]
        if not some:
            continue
        command = [sys.executable, "-m", "otil_exp.app", "-m", "hydra.launcher.pack=99", *grid(some, options)]
        process = subprocess.Popen(command, stdout=sys.stderr)
        try:
            process.wait(max(seconds - ENDING_S, 1))
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait(ENDING_S)
        yield from ((case, _benchmarked(case, options)) for case in some)


def grid(cases: list[Case], options: argparse.Namespace) -> list[str]:
    """The cases of one engine as the overrides of one grid."""
    varied: dict[str, list[str]] = {}
    for case in cases:
        for override in words(case, options.out, options.small):
            key, _, value = override.partition("=")
            varied.setdefault(key, [])
            varied[key] += [value] * (value not in varied[key])
    varied["topology"] = [PARTS["two_gpus"]]  # a reference has one rank on any
    return [f"{key}={','.join(values)}" for key, values in varied.items()] + list(OFTEN)


def _benchmarked(case: Case, options: argparse.Namespace) -> dict[str, Any] | None:
    """The figures of a finished run; None of one that is not."""
    folder = prepare_words([*words(case, options.out, options.small), *OFTEN]).folder
    if not folder.finished:
        return None
    return {
        "topology": case.topology,
        "side": int(folder.config["height"]),
        "runs_as": folder.record["engine_runs_as"],
        "image_s": folder.metrics["latency/image_s"]["value"],
        **medians([(row.kind, row.ms, row.bytes_sent) for row in folder.read_steps() if row.rank == 0]),
        "peak_mib": folder.record["peak_memory_mib"],
    }


MEASURES = {"one_gpu": in_processes, "two_gpus": real_ranks}


def words(case: Case, out: Path, small: bool) -> list[str]:
    """What a user types for the case."""
    found = [f"preset={case.preset}", f"topology={case.topology}", f"engine={case.engine}", "prompts.limit=1"]
    found += [f"output_dir={out}", "name=runs", "tracker=none", "metrics=none", f"device={'cuda' if GPU else 'cpu'}"]
    if not small:
        return [*found, f"model={case.model}_random"]
    files = (f"model.source={small_model(case.model, out)}", "model.architecture=files", "model.variant=null")
    sizes = ("height=256", "width=256", "num_inference_steps=6", "warmup_steps=2", "refresh.period=0")
    return [*found, f"model={case.model}", *files, *sizes, f"model.dtype={'float16' if GPU else 'float32'}"]


def small_model(model: str, out: Path) -> Path:
    """A pipeline with the layers of the model and an eighth of its channels, in a folder."""
    folder = out / f"small_{model}"
    if not folder.exists():
        whole = PUBLISHED[model]
        unet = {"block_out_channels": (40, 80, 160, 160), "norm_num_groups": 8, "cross_attention_dim": 64}
        text = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4}
        vae = {"block_out_channels": (8, 8, 16, 16), "norm_num_groups": 4}
        thin: Architecture = replace(whole, unet=dict(whole.unet) | unet, vae=dict(whole.vae) | vae, text=(text,))
        random_pipeline(thin, torch.float32, torch.device("cpu")).save_pretrained(folder)
    return folder


def composed(case: Case, out: Path, small: bool) -> ExperimentConfig:
    """The effective config of a rank whose peers are not there."""
    return prepare_words(words(case, out, small), alone=True).effective


def prepare_words(overrides: list[str], alone: bool = False) -> Cell:
    """A checked cell. alone: one rank of it, which asks for no other GPU."""
    register_schema()
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        config = compose("config", overrides)
    return prepare(config, lambda kind, ranks: kind) if alone else prepare(config)


def _figures(out: Path) -> list[dict[str, Any]]:
    path = out / "figures.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.sd_models", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="folder of the figures")
    parser.add_argument("--small", action="store_true", help="small networks, to try the script")
    parser.add_argument("--parts", default=None, help=f"some of {','.join(PARTS)}; default: all this machine can do")
    parser.add_argument("--minutes", type=float, default=60, help="after these no case is begun; default 60")
    parser.add_argument("--case", type=lambda text: Case(**json.loads(text)), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not re.fullmatch(r"[\w./-]+", str(options.out)):
        parser.error(f"{options.out}: a folder's name with other signs than letters, digits, . _ - is lost on the way")
    enough = torch.cuda.device_count() >= 2 or (options.small and not GPU)
    options.parts = options.parts.split(",") if options.parts else ["one_gpu", *["two_gpus"] * enough]
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"--parts {','.join(unknown)}: use some of {','.join(PARTS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
