"""Table of benchmarks/codec_scope.md: quality and bytes by codec, scope and renewal, from finished run folders.

    otil-exp -m experiment=ablation/codec_scope output_dir=OUT hydra.launcher.pack=99
    python -m benchmarks.codec_scope OUT/ablation

Differences are paired, over the prompts that both have, with the method's run without a codec that is renewed
periodically or never. kB: what rank 0 hands to its peers in the first step, in another step of the warm-up, and in the
mean step after it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

from otil_exp.report.collect import Run, collect, find_folders
from otil_exp.report.paired import difference
from otil_exp.run_folder.steps import StepRow

HEAD = (
    *("method", "codec", "renewal", "n", "PSNR dB", "to no codec, dB", "EffNet distance", "seam step, levels"),
    *("kB first", "kB synchronous", "kB other", "MB a picture"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    runs = [run for run in collect(find_folders(parser.parse_args().folders)) if run.value("ref/psnr") is not None]
    print(f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|", sep="\n")
    for run in sorted(runs, key=lambda run: (run.method, run.topology, -(run.value("ref/psnr") or 0))):
        print(f"| {' | '.join(row(run, base_of(run, runs)))} |")


def base_of(run: Run, runs: Iterable[Run]) -> Run | None:
    """The run of the same method and topology without a codec, renewed periodically or not at all."""
    alike = [one for one in runs if (one.method, one.topology) == (run.method, run.topology)]
    plain = [one for one in alike if _codec(one) == "none" and "rolling" not in _renewal(one)]
    return plain[0] if plain else None


def row(run: Run, base: Run | None) -> list[str]:
    apart = None if base is None or base is run else difference(run, base, "ref/psnr")
    rows = [one for one in run.folder.read_steps() if one.rank == 0]
    first, synchronous, others = (_kilobytes(rows, which) for which in _PARTS)
    pictures = len({one.prompt for one in rows})
    return [
        *(f"{run.method} {run.topology}", _codec(run), _renewal(run), str(run.entry("ref/psnr").get("n"))),
        f"{run.value('ref/psnr'):.2f} ± {run.entry('ref/psnr').get('standard_error') or 0:.2f}",
        "-" if apart is None else f"{apart.mean:+.2f} ± {apart.error:.2f}",
        *(f"{run.value(key) or 0:.3f}" for key in ("ref/effnet_lite0_5stage", "ref/step_levels")),
        *(first, synchronous, others, f"{sum(one.bytes_sent for one in rows) / pictures / 1e6:.2f}"),
    ]


_PARTS = (
    lambda one: one.step == 0,
    lambda one: one.step > 0 and one.kind == "warmup",
    lambda one: one.kind != "warmup",
)


def _kilobytes(rows: list[StepRow], which: Any) -> str:
    sent = [one.bytes_sent for one in rows if which(one)]
    return f"{fmean(sent) / 1e3:,.1f}" if sent else "-"


def _codec(run: Run) -> str:
    codec = run.record["effective"]["codec"]
    if codec["quantizer"] == "none":
        return "none"
    return f"{codec['quantizer']}{', changes' if codec['residual'] else ', values'}, {codec['scope']}"


def _renewal(run: Run) -> str:
    effective = run.record["effective"]
    word = "rolling" if effective["refresh_rolling"] else "every"
    return f"{word} {effective['refresh_period']}" if effective["refresh_period"] else "never"


if __name__ == "__main__":
    main()
