"""The Markdown tables of the result page, from results.json alone."""

from __future__ import annotations

from typing import Any

from plan import Plan, results

KINDS = ("warmup", "steady", "refresh", "final")


def tables(plan: Plan) -> str:
    """All tables that the parts which ran allow."""
    found = results(plan)
    blocks = [_machine(found.get("links", {})), _collectives(found.get("collectives", {}))]
    blocks.append(_lists("NCCL in a CUDA graph", found.get("capture", {})))
    blocks += [_cells(part, found) for part in sorted(found) if part.startswith("cells_")]
    blocks.append(_upstream(found.get("upstream", {})))
    equal = {key: value for key, value in found.get("pictures", {}).items() if key.startswith("equal")}
    blocks.append(_lists("Pictures against those of ranks that share a GPU", equal))
    blocks += [_lists("A rank killed", found.get("death", {})), _lists("Parts", found.get("parts", {}))]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _machine(links: dict[str, Any]) -> str:
    provenance = links.get("provenance", {})
    rows = {key: provenance.get(key) for key in ("gpus", "driver", "cpu", "versions", "git_commit")}
    facts = _lists("Machine", rows | {key: links.get(key) for key in ("nccl", "peer_access", "date")})
    return f"{facts}\n\n```\n{provenance.get('gpu_links')}\n```"


def _lists(title: str, facts: dict[str, Any]) -> str:
    return "\n".join([f"**{title}**", "", *(f"- {key}: {value}" for key, value in facts.items())]) if facts else ""


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
    if not cells:
        return ""
    head = "| cell | s/image | speed-up | " + " | ".join(f"{kind} ms" for kind in KINDS)
    head += " | steady without peers, ms | bytes, collectives of a steady step | peak MiB |"
    rows = [head, "|---" * (head.count("|") - 1) + "|"]
    reference = next((v["image_s"] for name, v in cells.items() if name.startswith("reference") and "image_s" in v), 0)
    for name, value in cells.items():
        kinds = value["kinds"]
        steady = kinds.get("steady", {})
        times = " | ".join(f"{kinds[kind]['ms']:.2f}" if kind in kinds else "-" for kind in KINDS)
        faster = f"{reference / value['image_s']:.2f}x" if reference and value["image_s"] else "-"
        without = alone.get(name, {}).get("steady", "-")
        sent = f"{steady.get('bytes', 0):,} B, {steady.get('collectives', 0)}"
        image, peak = f"{value['image_s']:.3f}", value["peak_memory_mib"]
        rows.append(f"| {name} | {image} | {faster} | {times} | {without} | {sent} | {peak} |")
    return "\n".join(rows)


def _upstream(found: dict[str, Any]) -> str:
    if not found:
        return ""
    rows = [f"| {name} | {times.get('warmup', '-')} | {times['steady']} |" for name, times in found.items()]
    return "\n".join(["| distrifuser as published | warm-up step, ms | steady step, ms |", "|---|---|---|", *rows])
