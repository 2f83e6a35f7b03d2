"""The Markdown tables of the result page, from results.json alone, or from those of several calls together.

python -m benchmarks.several_gpus.tables OUT [OUT ...] > tables.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

KINDS = ("warmup", "steady", "refresh", "final")


def tables(found: dict[str, Any]) -> str:
    """All tables that the parts which ran allow."""
    blocks = [_machine(found.get("links", {})), _collectives(found.get("collectives", {}))]
    blocks.append(_lists("An exchange of blocks", found.get("exchange", {})))
    blocks.append(_lists("NCCL in a CUDA graph", found.get("capture", {})))
    blocks += [_cells(part, found) for part in sorted(found) if part.startswith("cells_")]
    blocks.append(_failed("Compiled cells that were not timed", found.get("compiled_failed", {})))
    blocks.append(_failed("Cells that were not ready again", found.get("warm_failed", {})))
    blocks.append(_upstream(found.get("upstream", {})))
    equal = {key: value for key, value in found.get("pictures", {}).items() if key.startswith("equal")}
    blocks.append(_lists("Pictures against those of ranks that share a GPU", equal))
    blocks.append(_lists("Pictures of engine=compiled", found.get("compiled_pictures", {})))
    blocks += [_lists("A rank killed", found.get("death", {})), _lists("Parts", found.get("parts", {}))]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _machine(links: dict[str, Any]) -> str:
    if not links:
        return ""
    provenance = links.get("provenance", {})
    rows = {key: provenance.get(key) for key in ("gpus", "driver", "cpu", "versions", "git_commit")}
    facts = _lists("Machine", rows | {key: links.get(key) for key in ("nccl", "peer_access", "date")})
    return f"{facts}\n\n```\n{provenance.get('gpu_links')}\n```"


def _lists(title: str, facts: dict[str, Any]) -> str:
    return "\n".join([f"**{title}**", "", *(f"- {key}: {value}" for key, value in facts.items())]) if facts else ""


def _failed(title: str, logs: dict[str, str]) -> str:
    return "\n\n".join([f"**{title}**", *(f"{name}\n\n```\n{log}\n```" for name, log in logs.items())]) if logs else ""


def _collectives(found: dict[str, Any]) -> str:
    if not found:
        return ""
    rows = [f"| {int(size):,} | {value['ms']} | {value['GB/s']} |" for size, value in found.items() if size.isdigit()]
    return "\n".join(
        ["| all_gather, bytes a rank | ms | GB/s |", "|---|---|---|", *rows, "", f"Fit: {found.get('fit')}"]
    )


def _cells(part: str, found: dict[str, Any]) -> str:
    """One row a cell: image, ms a step by kind, what of the steady step is not there without peers, traffic."""
    cells, alone = found.get(part, {}), found.get("compute_only", {})
    cold, warm = found.get("cold_s", {}), found.get("warm_s", {})
    if not cells:
        return ""
    head = "| cell | s/image | speed-up | " + " | ".join(f"{kind} ms" for kind in KINDS)
    head += " | steady without peers, ms | bytes, collectives of a steady step | peak MiB | ready cold, s | warm, s |"
    rows = [head, "|---" * (head.count("|") - 1) + "|"]
    whole = (name for name in sorted(cells, key=_is_compiled) if name.startswith("reference"))
    reference = next((cells[name]["image_s"] for name in whole), 0)  # one GPU as upstream runs it, if it was measured
    for name, value in sorted(cells.items()):
        kinds = value["kinds"]
        steady = kinds.get("steady", {})
        times = " | ".join(f"{kinds[kind]['ms']:.2f}" if kind in kinds else "-" for kind in KINDS)
        faster = f"{reference / value['image_s']:.2f}x" if reference and value["image_s"] else "-"
        without = alone.get(name, {}).get("steady", "-")
        sent = f"{steady.get('bytes', 0):,} B, {steady.get('collectives', 0)}"
        image, peak = f"{value['image_s']:.3f}", value["peak_memory_mib"]
        ready = " | ".join(str(seconds.get(name) or "-") for seconds in (cold, warm))
        instead = f" ({value['runs_as']})" if "because" in value.get("runs_as", "") else ""
        rows.append(f"| {name}{instead} | {image} | {faster} | {times} | {without} | {sent} | {peak} | {ready} |")
    return "\n".join(rows)


def _is_compiled(name: str) -> bool:
    return " compiled " in name


def _upstream(found: dict[str, Any]) -> str:
    if not found:
        return ""
    rows = [f"| {name} | {times.get('warmup', '-')} | {times['steady']} |" for name, times in found.items()]
    return "\n".join(["| distrifuser as published | warm-up step, ms | steady step, ms |", "|---|---|---|", *rows])


def together(folders: list[str]) -> dict[str, Any]:
    """results.json of several calls as one; of a figure that two have, the later counts."""
    found: dict[str, Any] = {}
    for folder in folders:
        for part, figures in json.loads((Path(folder) / "results.json").read_text(encoding="utf-8")).items():
            found.setdefault(part, {}).update(figures)
    return found


if __name__ == "__main__":
    if not sys.argv[1:] or any(not (Path(folder) / "results.json").exists() for folder in sys.argv[1:]):
        sys.exit(f"{__doc__}\nEach OUT is a folder with a results.json.")
    print(tables(together(sys.argv[1:])), end="")
