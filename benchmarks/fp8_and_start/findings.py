"""What was found beside what was wanted: ratios of one run, and why something is missing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.one_gpu_speed.cases import UPSTREAM, Case, upstream_rank, whole

Finding = tuple[str, str, str]
"""What, what is wanted, what was found."""

WANTED = {"cold": "at most 120 s", "warm": "at most 15 s", "moved": "nothing compiled"}
"""Of each start."""

WORDS = 1500
"""Characters of a failure's log that are printed."""


def report(found: Sequence[Finding], folder: Path) -> None:
    """Print failures and the table, and write them."""
    lines = ["| what | wanted | found |", "|---|---|---|", *(f"| {' | '.join(finding)} |" for finding in found)]
    failures = [f"--- {path.parent.name}/{path.stem}\n{_end(path)}" for path in failed_logs(folder)]
    print(*(words[-WORDS:] for words in failures), *lines, sep="\n", flush=True)
    (folder / "found.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "failures.txt").write_text("\n".join(failures), encoding="utf-8")


def failed_logs(folder: Path) -> list[Path]:
    """Logs of cases and starts that left no figures."""
    return [log for log in sorted(folder.glob("*/*.log")) if not log.with_suffix(".json").exists()]


def speed_findings(cases: Sequence[Case], folder: Path) -> list[Finding]:
    """A row a case, in their order. folder: of benchmarks.one_gpu_speed."""
    results = _read(folder / "results.json", [])
    by_case = {result["case"]: result for result in results}
    return [_of_case(case, by_case, folder) for case in cases]


def _of_case(case: Case, by_case: dict[str, dict[str, Any]], folder: Path) -> Finding:
    wanted = _wanted(case)
    if case.name not in by_case:
        return case.name, wanted, f"not measured: {_last_line(folder / f'{case.name}.log')}"
    result = by_case[case.name]
    own = result["step_ms"]
    words = [f"{own:.2f} ms"]
    twins = {"of without": replace(case, variant=""), "of upstream's one GPU": whole(UPSTREAM, case.size)}
    if case.world_size > 1:
        twins["of upstream's rank"] = upstream_rank(case.size)
    for other, twin in twins.items():
        if twin.name in by_case and twin != case:
            words.append(f"{by_case[twin.name]['step_ms'] / own:.2f}x {other}")
    said = {"off by": "off_by", "peak MiB": "peak_mib", "graphs": "graphs", "host waits": "host_waits"}
    words += [f"{words_of} {_short(result[name])}" for words_of, name in said.items() if result.get(name)]
    words += ["not finite"] * (not result.get("finite", True))
    return case.name, wanted, ", ".join(words)


def _short(value: Any) -> str:
    return (f"{value:.0f}" if value >= 1 else f"{value:.1e}") if isinstance(value, float) else str(value)


def _wanted(case: Case) -> str:
    if case.variant != "fp8":
        return ""
    if case.size > 1024:
        return "no slower than without"
    return "at most 10.2 ms, 4.0x of upstream's one GPU" if case.world_size > 1 else ""


def start_findings(folder: Path) -> list[Finding]:
    """A row a start. folder: of benchmarks.fp8_and_start.start."""
    figures = _read(folder / "start.json", {})
    return [
        (f"start, {name}", wanted, json.dumps(figures.get(name, {"failed": "not measured"})))
        for name, wanted in WANTED.items()
    ]


def _last_line(log: Path) -> str:
    lines = _end(log).split("\n") if log.exists() else []
    return next((line for line in reversed(lines) if line.strip()), "not ready in time, or not begun")[:300]


def _end(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-2 * WORDS :].strip()


def _read(path: Path, otherwise: Any) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else otherwise
