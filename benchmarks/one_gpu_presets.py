"""Every preset at SDXL's full size on one GPU: 4 ranks share it (gloo), the reference also as a CUDA graph.

    python -m benchmarks.one_gpu_presets outputs

Shows that everything runs and that run folders are complete; the times of ranks that share a GPU mean nothing. Prints
two Markdown tables of what was counted, and exits with 1 if a run failed or its folder is not complete.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean

from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.steps import StepRow

NAME = "one_gpu_presets"
PRESETS = ("reference", "naive_patch", "full_sync", "distrifusion", "guide", "otil", "balanced", "tensor")
SETTINGS = ("prompts.limit=1", "num_inference_steps=10", "warmup_steps=2", "refresh=every5")
KINDS = ("warmup", "refresh", "steady", "final")
FILES = ("config.yaml", "record.json", "steps.csv", "metrics.json", "images/00.png", "logs/rank0.log")


def main(root: Path) -> int:
    shared = ("-m", f"preset={','.join(PRESETS)}", "device=shared_gpu", "topology=4gpu_split")
    graph = ("preset=reference", "device=cuda", "engine=cuda_graph")
    app = (sys.executable, "-m", "otil_exp.app")
    common = ("model=sdxl_random", *SETTINGS, f"name={NAME}", f"output_dir={root}")
    codes = [subprocess.run([*app, *cells, *common]).returncode for cells in (shared, graph)]
    folders = [RunFolder(path) for path in (root / NAME).iterdir() if path.is_dir()]
    folders.sort(key=lambda folder: PRESETS.index(folder.record["method"]))
    print(*cost_table(folders), "", *traffic_table(folders), sep="\n")
    missing = [str(folder.path / name) for folder in folders for name in FILES if not (folder.path / name).exists()]
    print(
        *(f"missing: {path}" for path in missing), f"{len(folders)} run folders, {len(missing)} files missing", sep="\n"
    )
    return 1 if missing or any(codes) or len(folders) != len(PRESETS) + 1 else 0


def cost_table(folders: list[RunFolder]) -> list[str]:
    """One Markdown row a run."""
    lines = [
        "| method | engine | status | ms/step | PSNR dB | peak memory of rank 0, MiB |",
        "|---|---|---|---|---|---|",
    ]
    for folder in folders:
        record, metrics = folder.record, folder.metrics
        step_ms, psnr = metrics["latency/step_ms"]["value"], metrics.get("ref/psnr", {}).get("value")
        lines.append(
            f"| {record['method']} | {folder.config['engine']['name']} | {record['status']} "
            f"| {f'({step_ms:.0f})' if record['times_meaningless'] else f'{step_ms:.1f}'} "
            f"| {'-' if psnr is None else f'{psnr:.2f}'} | {record['peak_memory_mib']:.0f} |"
        )
    return lines


def traffic_table(folders: list[RunFolder]) -> list[str]:
    """One Markdown row a run: collectives and bytes a rank sends in a step of each kind."""
    lines = [f"| method | {' | '.join(KINDS)} |", "|---" * (len(KINDS) + 1) + "|"]
    for folder in folders:
        rows: dict[str, list[StepRow]] = defaultdict(list)
        for row in folder.read_steps():
            rows[row.kind].append(row)
        lines.append(f"| {folder.record['method']} | {' | '.join(_traffic(rows[kind]) for kind in KINDS)} |")
    return lines


def _traffic(rows: list[StepRow]) -> str:
    if not rows:
        return "-"
    return f"{fmean(row.collectives for row in rows):.1f} x, {fmean(row.bytes_sent for row in rows):,.0f} B"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        "python -m benchmarks.one_gpu_presets",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, nargs="?", default=Path("outputs"), help="of the runs; default outputs")
    sys.exit(main(parser.parse_args().folder))
