"""The table of the result page."""

from __future__ import annotations

from typing import Any


def table(results: list[dict[str, Any]]) -> list[str]:
    """One Markdown row a case."""
    lines = [
        "| case | silent step, ms | synchronous, ms | host, ms | off by | peak memory, MiB | ready after, s |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        synchronous = f"{result['synchronous_ms']:.2f}" if "synchronous_ms" in result else "-"
        host = f"{result['host_ms']:.2f}" if result["host_ms"] else "-"
        off_by = f"{result['off_by']:.1e}" if "off_by" in result else "-"
        lines.append(
            f"| {result['case']} | {result['step_ms']:.2f} | {synchronous} | {host} | {off_by} "
            f"| {result['peak_mib']:.0f} | {result['ready_s']:.0f} |"
        )
    return lines
