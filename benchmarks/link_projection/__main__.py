"""How far projections are off where both ends were measured: tables of the result page.

python -m benchmarks.link_projection
"""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.link_projection.figures import (
    HOST_MEMORY,
    NVLINK,
    OUTSIDE_STEPS_S,
    PUBLISHED,
    REFRESHES,
    STEPS,
    SYNCHRONOUS,
    TCP,
    TRANSPORTS,
    Measured,
)
from otil_exp.links import Links, read_links
from otil_exp.links.projection import compute_s, step_s
from otil_exp.run_folder.messages import MessageRow

KEYS_VALUES, NOISE_PREDICTION = 5_000_000, 131_072
"""Bytes: from which on a message of two ranks has keys and values, and their slice of the noise prediction."""

MESSAGES = Path(__file__).with_name("messages.csv")


def main() -> None:
    print("| method | from | to | measured s | projected s | off by |\n| --- | --- | --- | --: | --: | --: |")
    found = errors()
    for (method, origin, target), (measured, projected) in found.items():
        off = projected / measured - 1
        print(f"| {method} | {origin} | {target} | {measured:.3f} | {projected:.3f} | {off:+.1%} |")
    sizes = [
        abs(projected / measured - 1) for (_, origin, _), (measured, projected) in found.items() if origin == NVLINK
    ]
    print(f"\nfrom {NVLINK}: {len(sizes)} cells, median {median(sizes):.1%}, largest {max(sizes):.1%}\n")
    print("| method | GPUs | published s | projected s | off by | computation |\n| --- | --: | --: | --: | --: | --- |")
    for row in PUBLISHED:
        projected = published(row.method, row.world_size, row.compute_s)
        off = projected / row.image_s - 1
        print(f"| {row.method} | {row.world_size} | {row.image_s} | {projected:.2f} | {off:+.1%} | {row.source} |")


def errors() -> dict[tuple[str, str, str], tuple[float, float]]:
    """(method, measured on, projected to) -> seconds a picture there, measured and projected."""
    pairs = [(NVLINK, HOST_MEMORY), (NVLINK, TCP), (HOST_MEMORY, TCP)]
    return {
        (method, origin, target): (
            TRANSPORTS[target][method].image_s,
            projected(method, TRANSPORTS[origin][method], read_links(origin), read_links(target)),
        )
        for origin, target in pairs
        for method in TRANSPORTS[origin]
    }


def projected(method: str, measured: Measured, origin: Links, target: Links) -> float:
    """Seconds a picture on other links, as otil_exp.report.projection has it: what changes in the steps."""
    image = measured.image_s
    for kind, count in _kinds(method).items():
        step, rows = _step_s(method, measured, kind), messages(method, 2, kind)
        computed = compute_s(step, rows, origin, joined=True)
        image += count * (step_s(computed, rows, target, joined=True) - step)
    return image


def published(method: str, world_size: int, compute: float) -> float:
    """Seconds a picture on A100s with NVLink: DistriFusion's warm-up steps are those of full_sync."""
    links, image = read_links("nvlink_a100"), 0.0
    warm = SYNCHRONOUS if method == "distrifusion" else 0
    for kind, count in (("warmup", warm), ("steady", STEPS - warm)):
        if count:
            rows = [_among(row, world_size) for row in messages(method, 2, kind)]
            image += count * step_s(compute / STEPS, rows, links, joined=True)
    return image


def _among(row: MessageRow, world_size: int) -> MessageRow:
    """A message of two ranks among more: what a rank's rows hold shrinks with them, rows at boundaries do not.

    Keys and values are the large ones; the few boundary rows joined with them (DistriFusion, 4 %) are taken to shrink.
    """
    rows_of_a_slice = row.bytes >= KEYS_VALUES or row.bytes == NOISE_PREDICTION
    return replace(row, ranks=world_size, bytes=row.bytes * 2 // world_size if rows_of_a_slice else row.bytes)


def messages(method: str, world_size: int, kind: str) -> list[MessageRow]:
    """As counted by benchmarks.link_projection.count."""
    with MESSAGES.open(encoding="utf-8", newline="") as file:
        lines = [
            line for line in csv.DictReader(file) if (line["method"], line["world_size"]) == (method, str(world_size))
        ]
    own = [line for line in lines if line["kind"] == kind]
    return [
        MessageRow(
            kind,
            line["operation"],
            int(line["ranks"]),
            int(line["bytes"]),
            line["waits"] == "1",
            float(line["per_step"]),
        )
        for line in own
    ]


def _kinds(method: str) -> dict[str, int]:
    """How many steps of each kind a picture has; the final one, which gathers the latent once more, is a steady one."""
    if method == "full_sync":
        return {"steady": STEPS}
    refreshes = REFRESHES.get(method, 0)
    return {"warmup": SYNCHRONOUS, "steady": STEPS - SYNCHRONOUS - refreshes, "refresh": refreshes}


def _step_s(method: str, measured: Measured, kind: str) -> float:
    """Seconds of a step of a kind: as noted; else synchronous ones as otil's, and a steady one what is left over."""
    noted = dict(zip(("warmup", "steady", "refresh"), measured.ms, strict=True))[kind]
    if noted is not None:
        return noted / 1e3
    synchronous = dict(zip(("warmup", "steady", "refresh"), TRANSPORTS[NVLINK]["otil"].ms, strict=True))
    if kind != "steady":
        return (synchronous[kind] or 0.0) / 1e3
    others = {other: count for other, count in _kinds(method).items() if other != "steady"}
    rest = (
        measured.image_s
        - OUTSIDE_STEPS_S
        - sum(count * (synchronous[other] or 0.0) / 1e3 for other, count in others.items())
    )
    return rest / _kinds(method)["steady"]


if __name__ == "__main__":
    main()
