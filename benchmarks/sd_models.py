"""Stable Diffusion 1.5 at 512 x 512 and 2.1 at 768 x 768 with random weights: what a step and a picture take.

    python -m benchmarks.sd_models OUT [--small] [--parts one_gpu,two_gpus] [--minutes 9.5]

one_gpu: rank 0 of 4 ranks with the batch split, peers played by torch's fake process group: compute alone. two_gpus,
where there are two: mode=benchmark of two ranks, the batch not split, and of one. Each figure is a line of
OUT/figures.jsonl, OUT/table.md the tables of all of them. A figure that is there is not measured again, so that another
call goes on where --minutes ended this one. --small: small networks and pictures, on the CPU where there is no GPU, to
try the script.
"""

from __future__ import annotations

import argparse
import json
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

from benchmarks.fake_peers import rank_0
from otil_exp.cells.prepare import prepare
from otil_exp.conf_tree import conf_folder
from otil_exp.config import ExperimentConfig
from otil_exp.models.architecture import PUBLISHED, Architecture
from otil_exp.models.random_weights import random_pipeline
from otil_exp.pipeline import build_pipeline
from otil_exp.rank_unet.sliced import graph
from otil_exp.run_folder.cell import Cell
from otil_exp.schema import register_schema
from otil_exp.topology import Topology

GPU = torch.cuda.is_available()
MODELS = ("sd15", "sd21")
PRESETS = ("reference", "distrifusion", "guide", "otil", "tensor")
ENGINES = ("cuda_graph", "compiled") if GPU else ("eager", "compiled")
COMPILABLE = ("reference", "guide", "otil")
"""distrifuser's other layers are replayed as CUDA graphs whatever is asked for (Method.obstacle)."""

SHORTEST_S = 45
"""Less time than this is not begun a case in."""

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


def cases(parts: list[str]) -> Iterator[Case]:
    for part in parts:
        for model in MODELS:
            for engine in ENGINES:
                presets = COMPILABLE if engine == "compiled" else PRESETS
                if part == "two_gpus" and engine == "compiled" and not GPU:
                    continue  # where the script is tried: minutes of a C++ compiler
                yield from (Case(part, model, preset, engine) for preset in presets)


def main() -> int:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.case is not None:  # a process of its own for each case
        print(json.dumps(MEASURES[options.case.part](options.case, options.out, options.small)))
        return 0
    figures = _figures(options.out)
    left = [case for case in cases(options.parts) if not any(asdict(case).items() <= one.items() for one in figures)]
    failed, end = 0, time.monotonic() + 60 * options.minutes
    while left and end - time.monotonic() > SHORTEST_S:
        case = left.pop(0)
        try:
            figure = asdict(case) | _in_process(case, options.out, options.small, end - time.monotonic())
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            traceback.print_exc()
            failed += 1
            continue
        figures.append(figure)
        print(json.dumps(figure), flush=True)
        with (options.out / "figures.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(figure) + "\n")
        (options.out / "table.md").write_text("\n".join(tables(figures)) + "\n", encoding="utf-8")
    print(*tables(figures), f"{failed} cases failed, {len(left)} are left for another call", sep="\n")
    return 1 if failed or left else 0


def rank_alone(case: Case, out: Path, small: bool) -> dict[str, Any]:
    """Rank 0's own work: milliseconds of a picture without text encoder and VAE, and of its steps."""
    if small:
        graph.BACKEND = "eager"  # of engine=compiled: no compiler is needed to try the script
    config = composed(case, out, small)
    topology = Topology(**asdict(config.topology))
    device = torch.device("cuda" if GPU else "cpu")
    start = time.perf_counter()
    with build_pipeline(config, rank_0(topology, device)) as pipeline:
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


def real_ranks(case: Case, out: Path, small: bool) -> dict[str, Any]:
    """What `otil-exp mode=benchmark` measures."""
    often = ("mode=benchmark", "benchmark.warmup_images=1", "benchmark.repeats=5", "launch.collective_timeout_s=120")
    overrides = [*words(case, out, small), *often]
    subprocess.run([sys.executable, "-m", "otil_exp.app", *overrides], check=True, stdout=sys.stderr)
    folder = prepare_words(overrides).folder
    return {
        "topology": case.topology,
        "side": int(folder.config["height"]),
        "runs_as": folder.record["engine_runs_as"],
        "image_s": folder.metrics["latency/image_s"]["value"],
        **medians([(row.kind, row.ms, row.bytes_sent) for row in folder.read_steps() if row.rank == 0]),
        "peak_mib": folder.record["peak_memory_mib"],
    }


MEASURES = {"one_gpu": rank_alone, "two_gpus": real_ranks}


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


def tables(figures: list[dict[str, Any]]) -> list[str]:
    """A Markdown table for each part and model."""
    lines: list[str] = []
    for part in PARTS:
        for model in MODELS:
            rows = [figure for figure in figures if (figure["part"], figure["model"]) == (part, model)]
            if rows:
                lines += ["", *_table(part, model, rows)]
    return lines


def _table(part: str, model: str, rows: list[dict[str, Any]]) -> list[str]:
    """times: how often the picture of the reference with the same engine fits."""
    picture = "steps_ms" if part == "one_gpu" else "image_s"
    alone = {row["engine"]: row[picture] for row in rows if row["preset"] == "reference"}
    lines = [
        f"{part}, {model}, {rows[0]['side']} x {rows[0]['side']}",
        "",
        "| method | engine | ranks | synchronous step ms | steady step ms | picture "
        f"{'ms' if picture == 'steps_ms' else 's'} | times | KB sent a steady step | peak MiB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        times = alone[row["engine"]] / row[picture] if row["engine"] in alone else None
        lines.append(
            f"| {row['preset']} | {row['engine']} | {row['topology']} | {_number(row.get('warmup_ms'), 2)} "
            f"| {_number(row.get('steady_ms'), 2)} | {_number(row[picture], 1 if picture == 'steps_ms' else 3)} "
            f"| {_number(times, 2)} | {_number(row.get('steady_sent', 0) / 1e3, 0)} | {_number(row['peak_mib'], 0)} |"
        )
    return lines


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _figures(out: Path) -> list[dict[str, Any]]:
    path = out / "figures.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _in_process(case: Case, out: Path, small: bool, seconds: float) -> dict[str, Any]:
    """A case in a process of its own: one process group, and memory that no other case left behind."""
    command = [sys.executable, "-m", "benchmarks.sd_models", str(out), "--case", json.dumps(asdict(case))]
    command += ["--small"] * small
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=seconds)
    figure: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figure


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
    enough = torch.cuda.device_count() >= 2 or (options.small and not GPU)
    options.parts = options.parts.split(",") if options.parts else ["one_gpu", *["two_gpus"] * enough]
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"--parts {','.join(unknown)}: use some of {','.join(PARTS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
