"""The measurement of fp8: its case is a calibrated rank, its tables say what was found beside what was wanted."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import distributed as dist

from benchmarks.fp8_and_start import __main__ as call
from benchmarks.fp8_and_start import findings
from benchmarks.fp8_and_start.findings import Finding, speed_findings
from benchmarks.fp8_and_start.pictures import Made, psnr, table
from benchmarks.one_gpu_speed import cases, measure
from benchmarks.one_gpu_speed.case_job import run_case
from benchmarks.one_gpu_speed.cases import CASES, UPSTREAM, Case, whole
from benchmarks.one_gpu_speed.measure import steps_of
from benchmarks.one_gpu_speed.outputs import compare_outputs
from benchmarks.one_gpu_speed.rank import prepared_unet
from benchmarks.side_by_side import Files
from otil_exp.rank_unet import compiled_call
from otil_exp.rank_unet.products import MARGIN, Fp8Linear
from otil_exp.run_folder.folder import RunFolder
from otil_exp.run_folder.whole import write_text
from run_folder.finished import SIDE, finished


def test_a_case_in_fp8_is_a_rank_with_scales() -> None:
    outputs = []
    for variant in ("", "fp8"):
        case = Case("no_sync", "eager", 256, 2, False, variant=variant)
        unet, inputs = prepared_unet(case, torch.device("cpu"))
        unet.begin(steps_of(case))
        with torch.no_grad():
            outputs.append(unet(**inputs).sample)
        layers = [module for module in unet.modules() if isinstance(module, Fp8Linear)]
        dist.destroy_process_group()
    called = [layer for layer in layers if layer.largest > 0]
    assert called
    for layer in called:
        assert layer.scale.item() == pytest.approx(MARGIN * layer.largest.item() / 448)
    assert 0 < (outputs[1] - outputs[0]).norm() / outputs[0].norm() < 0.1


def test_what_a_gpu_is_to_measure_is_among_its_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cases, call, findings):
        monkeypatch.setattr(module, "UPSTREAM", "cuda_graph")
    monkeypatch.setattr(call, "ON_CPU", False)
    monkeypatch.setattr(call, "SIZE", 1024)
    wanted = call.speed_cases()
    assert [case.name for case in wanted] == [
        "reference-cuda_graph-1024-1",
        "no_sync-cuda_graph-1024-4s-both",
        "no_sync-compiled-1024-4s",
        "no_sync-compiled-1024-4s-fp8",
        "reference-compiled-1024-1",
        "reference-compiled-1024-1-fp8",
    ]
    assert set(wanted) | set(call.more_cases()) <= set(cases.cases_on_gpu())


def test_a_case_is_timed_and_told_from_its_record_to_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With PyTorch's graphs but no compiler; in this process, which is let go before it starts."""
    monkeypatch.setattr(compiled_call, "BACKEND", "aot_eager")
    monkeypatch.setattr(measure, "REPEATS", 1)
    cases_of = [whole(UPSTREAM, 256), whole("compiled", 256, variant="fp8")]
    results = []
    for case in cases_of:
        files = Files(tmp_path, case.name)
        files.halt.let_go()
        run_case(case, files)
        results.append(json.loads(files.path("json").read_text()))
    compare_outputs(results, tmp_path)
    write_text(tmp_path / "results.json", json.dumps(results))
    assert [result["runs_as"] for result in results] == ["eager", "compiled, called without a CUDA graph"]
    assert "off_by" not in results[0]
    assert 1e-5 < results[1]["off_by"] < 0.1
    rows = speed_findings(cases_of, tmp_path)
    assert all(f"{result['step_ms']:.2f} ms" in row[2] for result, row in zip(results, rows, strict=True))
    assert "x of upstream's one GPU, off by " in rows[1][2]


def test_what_is_measured_is_among_the_cases_and_said_beside_what_was_wanted(tmp_path: Path) -> None:
    wanted = call.speed_cases()
    assert set(wanted) | set(call.more_cases()) <= set(CASES)
    plain, quantised = (Case("no_sync", "compiled", call.SIZE, gn_sync="true", variant=one) for one in ("", "fp8"))
    measured: list[tuple[Case, float, dict[str, int]]] = [
        (whole(UPSTREAM, call.SIZE), 40.0, {}),
        (Case("no_sync", UPSTREAM, call.SIZE), 16.0, {}),
        (whole("compiled", call.SIZE), 32.0, {}),
        (plain, 12.0, {}),
        (quantised, 10.0, {"a.py:3": 1}),
    ]
    results: list[dict[str, Any]] = [
        {"case": case.name, "step_ms": ms, "graphs": 1, "host_waits": waits} for case, ms, waits in measured
    ]
    write_text(tmp_path / "results.json", json.dumps(results))
    failing = replace(plain, gn_sync="false", variant="fp8")
    write_text(tmp_path / f"{failing.name}.log", "Traceback ...\nRuntimeError: no such luck\n")
    found = {what: (wanted, said) for what, wanted, said in speed_findings([*wanted, *call.more_cases()], tmp_path)}
    aim = "at most 10.2 ms, 4.0x of upstream's one GPU"
    ratios = "1.20x of without, 4.00x of upstream's one GPU, 1.60x of upstream's rank"
    assert found[quantised.name] == (aim, f"10.00 ms, {ratios}, graphs 1, host waits {{'a.py:3': 1}}")
    assert found[plain.name][1] == "12.00 ms, 3.33x of upstream's one GPU, 1.33x of upstream's rank, graphs 1"
    assert found[whole("compiled", call.SIZE).name][1] == "32.00 ms, 1.25x of upstream's one GPU, graphs 1"
    assert found[failing.name] == (aim, "not measured: RuntimeError: no such luck")
    assert found[replace(plain, gn_sync="false").name] == ("", "not measured: not ready in time, or not begun")


def test_a_part_that_fails_costs_only_itself_and_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(folder: Path, left: float) -> list[Finding]:
        raise RuntimeError("no such luck")

    (tmp_path / "speed").mkdir()
    (tmp_path / "speed" / "one.log").write_text("why\n")
    monkeypatch.setattr(call, "PARTS", {"speed": fails, "start": lambda folder, left: [("start", "", "3 s")]})
    monkeypatch.setattr(sys, "argv", ["fp8_and_start", str(tmp_path), "speed", "start"])
    assert call.main() == 0
    table = (tmp_path / "found.md").read_text()
    assert "| speed |  | failed: RuntimeError: no such luck |" in table
    assert "| start |  | 3 s |" in table
    assert (tmp_path / "failures.txt").read_text() == "--- speed/one\nwhy"


def test_psnr_by_hand() -> None:
    """One of 4 values off by 51, a fifth of 255: the mean square is 1/100 of 255 squared."""
    one, other = np.zeros((2, 2)), np.zeros((2, 2))
    other[0, 0] = 51
    assert psnr(one, other) == pytest.approx(20.0)
    assert psnr(one, one) == math.inf


def test_pictures_are_compared_with_those_of_the_same_method_without(tmp_path: Path) -> None:
    """Of one colour each: reference 100, otil 110, with fp8 111 and 1 off: 20 lg(255 / distance)."""
    grey = {"reference": 100, "otil": 110}
    for method, level in grey.items():
        for quantised in (False, True):
            more = {"products": {"overflow": 7}} if quantised else {}
            folder = finished(tmp_path / f"{method}{quantised}", reference=method == "reference", prompts=1, **more)
            folder.write_image(0, Image.new("RGB", (SIDE, SIDE), (level + quantised,) * 3))
    found = [Made(RunFolder(path)) for path in sorted(tmp_path.iterdir())]
    rows = table(found)
    assert rows[2] == "| otil 1gpu | 48.1 (48.1) | 28.13 | 27.30 | 7 |"
    assert rows[3] == "| reference 1gpu | 48.1 (48.1) | - | 48.13 | 7 |"
    assert rows[-2:] == ["Order without: otil 1gpu.", "Order with fp8: otil 1gpu."]
