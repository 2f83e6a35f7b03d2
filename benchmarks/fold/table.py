"""Parts of the fold as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

COLUMNS = (
    "part",
    "cut",
    "batch",
    "engine",
    "ms",
    "ready, s",
    "weights, MiB",
    "peak, MiB",
    "of whole, b2",
    "of whole, b1",
)


def table(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Markdown; peaks also as shares of the whole UNet's, of the same run, at batch 2 and 1."""
    well = [one for one in results if "failed" not in one]
    whole = {one["batch"]: one["peak_mib"] for one in well if one["part"] == "whole" and one["peak_mib"]}
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|---" * len(COLUMNS) + "|"
    for one in well:
        shares = [_share(one["peak_mib"], whole.get(batch)) for batch in (2, 1)]
        figures = (one["ms"], one["ready_s"], one["weights_mib"], one["peak_mib"] or "-", *shares)
        yield f"| {' | '.join(map(str, (one['part'], one['cut'], one['batch'], one['engine'], *figures)))} |"
    yield from (f"\n{one['part']} failed" for one in results if "failed" in one)


def _share(peak: float | None, whole: float | None) -> str:
    return f"{100 * peak / whole:.1f} %" if peak and whole else "-"
