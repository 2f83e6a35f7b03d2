"""Tables of the figures of `benchmarks.sd_models`."""

from __future__ import annotations

from typing import Any


def tables(figures: list[dict[str, Any]]) -> list[str]:
    """A Markdown table for each part and model."""
    lines: list[str] = []
    for part, model in sorted({(figure["part"], figure["model"]) for figure in figures}):
        rows = [figure for figure in figures if (figure["part"], figure["model"]) == (part, model)]
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
