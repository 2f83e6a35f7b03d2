"""The Markdown tables of what is no run of otil-exp alone, from results.json, or from those of several calls together.

python -m benchmarks.several_gpus.tables OUT [OUT ...] > tables.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def tables(found: dict[str, Any]) -> str:
    """All tables that the parts which ran allow."""
    blocks = [_upstream(found.get("upstream", {}))]
    blocks.append(_lists("Ready, nothing compiled yet, s", found.get("cold_s", {})))
    blocks.append(_lists("Ready, everything compiled, s", found.get("warm_s", {})))
    blocks.append(_failed("Compiled cells that were not timed", found.get("compiled_failed", {})))
    blocks.append(_failed("Cells that were not ready again", found.get("warm_failed", {})))
    blocks.append(_lists("Steps without peers, ms by kind", found.get("compute_only", {})))
    equal = {key: value for key, value in found.get("pictures", {}).items() if key.startswith("equal")}
    blocks.append(_lists("Pictures against those of ranks that share a GPU", equal))
    blocks.append(_lists("Pictures of engine=compiled", found.get("compiled_pictures", {})))
    blocks.append(_lists("Parts", found.get("parts", {})))
    return "\n\n".join(block for block in blocks if block) + "\n"


def _lists(title: str, facts: dict[str, Any]) -> str:
    return "\n".join([f"**{title}**", "", *(f"- {key}: {value}" for key, value in facts.items())]) if facts else ""


def _failed(title: str, logs: dict[str, str]) -> str:
    return "\n\n".join([f"**{title}**", *(f"{name}\n\n```\n{log}\n```" for name, log in logs.items())]) if logs else ""


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
