#!/usr/bin/env python3
"""One step of one rank on one GPU, upstream's way and ours side by side: milliseconds, memory, host work.

    python benchmarks/one_gpu_speed.py FOLDER [NAME ...]        # cases by name, as in CASES; default all
    python benchmarks/one_gpu_speed.py --list

Other ranks are played by torch's fake process group (what it gathers is the rank's own), so that a step is this rank's
compute alone: what NCCL takes is not in it. Every case is a process of its own. Those that compile do so side by side,
and then each is timed alone; the others come after them. Prints a Markdown table and writes results.json.
Without a GPU the model is shapes at 256 x 256, upstream's layers are called, and cases compile one after the other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch

WARMUP_STEPS = 1
REPEATS = 20
COMPILE_TIMEOUT_S = float(os.environ.get("COMPILE_TIMEOUT_S", 900))
"""Bound on getting a batch of cases ready."""
ON_CPU = not torch.cuda.is_available()


@dataclass(frozen=True)
class Case:
    """One rank's step."""

    method: str
    engine: str = "cuda_graph"
    size: int = 1024
    world_size: int = 4
    split_batch: bool = True
    gn_sync: str = "false"
    both: bool = False
    """Whether synchronous steps are made ready and timed too."""

    variant: str = ""
    """flash: attention by FlashAttention, PyTorch's own first choice, instead of cuDNN. autotune: matrix products by
    the fastest of Triton's and cuBLAS's. regions: a transformer block is compiled once and called 70 times."""

    @property
    def name(self) -> str:
        ranks = f"{self.world_size}{'s' if self.split_batch else ''}"
        extras = (
            ["gn-" + self.gn_sync] * (self.gn_sync != "false")
            + ["both"] * self.both
            + [self.variant] * bool(self.variant)
        )
        return "-".join([self.method, self.engine, str(self.size), ranks, *extras])


UPSTREAM = "eager" if ON_CPU else "cuda_graph"
"""How upstream's layers are run."""


def whole(engine: str, size: int, **rest: Any) -> Case:
    return Case("reference", engine, size, 1, False, **rest)


def cases_on_gpu() -> list[Case]:
    cases = [
        *(whole("compiled", size) for size in (1024, 2048, 3840)),
        *(Case("no_sync", "compiled", size) for size in (1024, 2048, 3840)),
        Case("no_sync", "compiled", gn_sync="true"),
        Case("no_sync", "compiled", gn_sync="fused", both=True),
    ]
    ranks = ((2, True), (2, False), (4, False), (8, True), (8, False))
    cases += [Case("no_sync", "compiled", 1024, *rank) for rank in ranks]
    cases += [
        whole("compiled", 1024, variant="flash"),
        Case("no_sync", "compiled", variant="flash"),
        Case("no_sync", "compiled", variant="autotune"),
        Case("no_sync", "compiled", variant="regions"),
        Case("no_sync", "compiled", gn_sync="fused", both=True, variant="regions"),
    ]
    upstream = [replace(case, engine=UPSTREAM) for case in cases if not case.variant and case.gn_sync != "fused"]
    return cases + [replace(case, both=case == Case("no_sync", UPSTREAM)) for case in upstream] + [Case("distrifusion")]


def cases_on_cpu() -> list[Case]:
    kinds = [
        whole("compiled", 256),
        *(Case("no_sync", "compiled", 256, *rank) for rank in ((2, False), (4, True))),
        Case("no_sync", "compiled", 256, gn_sync="true"),
    ]
    return kinds + [replace(case, engine=UPSTREAM) for case in kinds]


CASES = cases_on_cpu() if ON_CPU else cases_on_gpu()


def main(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    cases = [case for case in CASES if not names or case.name in names]
    unknown = set(names) - {case.name for case in cases}
    if unknown:
        sys.exit(f"no case is called {', '.join(sorted(unknown))}; --list names them")
    compiled = [case for case in cases if case.engine == "compiled"]
    batches = [[case] for case in compiled] if ON_CPU else [compiled]
    results: list[dict[str, Any]] = []
    for batch in [*batches, [case for case in cases if case.engine != "compiled"]]:
        for result in timed_together(batch, folder):
            results.append(result)
            print(json.dumps(result), flush=True)
            (folder / "results.json").write_text(json.dumps(results, indent=1))
    compare_outputs(results, folder)
    (folder / "results.json").write_text(json.dumps(results, indent=1))
    print(*table(results), sep="\n")


def timed_together(cases: Sequence[Case], folder: Path) -> Iterator[dict[str, Any]]:
    """Get all cases ready side by side, then time one after the other."""
    start = time.monotonic()
    children = {case.name: _start(case, folder) for case in cases}
    waiting = dict(children)
    while waiting and time.monotonic() - start < COMPILE_TIMEOUT_S:
        time.sleep(0.5)
        waiting = {
            name: child
            for name, child in waiting.items()
            if child.poll() is None and not (folder / f"{name}.ready").exists()
        }
    print(f"ready after {time.monotonic() - start:.0f} s; not ready: {', '.join(waiting) or 'none'}", flush=True)
    for child in waiting.values():
        child.kill()
    for case in cases:
        (folder / f"{case.name}.go").touch()
        try:
            children[case.name].wait(timeout=180)
        except subprocess.TimeoutExpired:
            children[case.name].kill()
        result = folder / f"{case.name}.json"
        if result.exists():
            yield json.loads(result.read_text())
        else:
            print(f"{case.name}: failed\n{(folder / f'{case.name}.log').read_text()[-1500:]}", flush=True)


def _start(case: Case, folder: Path) -> subprocess.Popen[bytes]:
    for suffix in ("ready", "go", "json"):
        (folder / f"{case.name}.{suffix}").unlink(missing_ok=True)
    return subprocess.Popen(
        [sys.executable, __file__, "--case", json.dumps(asdict(case)), str(folder)],
        stdout=(folder / f"{case.name}.log").open("w"),
        stderr=subprocess.STDOUT,
    )


def compare_outputs(results: list[dict[str, Any]], folder: Path) -> None:
    """Add how far a compiled step is from the same step of upstream's layers: ||a - b|| / ||b||."""
    by_case = {result["case"]: result for result in results}
    for case in CASES:
        twins = [replace(case, engine=UPSTREAM, variant="", both=both).name for both in (False, True)]
        twin = next((name for name in twins if name in by_case), None)
        if case.engine == "compiled" and case.name in by_case and twin is not None:
            ours, theirs = (torch.load(folder / f"{name}.pt").float() for name in (case.name, twin))
            by_case[case.name]["off_by"] = float((ours - theirs).norm() / theirs.norm())


def table(results: list[dict[str, Any]]) -> list[str]:
    """One Markdown row a case."""
    lines = [
        "| case | silent step, ms | synchronous, ms | host, ms | off by | peak memory, MiB | ready after, s |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        synchronous = f"{result['synchronous_ms']:.2f}" if "synchronous_ms" in result else "-"
        off_by = f"{result['off_by']:.1e}" if "off_by" in result else "-"
        lines.append(
            f"| {result['case']} | {result['step_ms']:.2f} | {synchronous} | {result['host_ms']:.2f} | {off_by} "
            f"| {result['peak_mib']:.0f} | {result['ready_s']:.0f} |"
        )
    return lines


def run_case(case: Case, folder: Path) -> None:
    """Build one rank's UNet, say so, wait for the word, time it."""
    import torch._inductor.config
    from diffusers.models.attention import BasicTransformerBlock

    from otil_exp.upstream.sliced import graph

    if case.variant == "flash":
        graph.ATTENTION = graph.ATTENTION[1:]
    if case.variant == "autotune":
        torch._inductor.config.max_autotune_gemm = True
        torch._inductor.config.max_autotune_conv_backends = "ATEN"
    if case.variant == "regions":
        BasicTransformerBlock.forward = torch.compiler.nested_compile_region(BasicTransformerBlock.forward)
    start = time.monotonic()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    unet, inputs = prepared_unet(case, device)
    ready = time.monotonic() - start
    (folder / f"{case.name}.ready").touch()
    while not (folder / f"{case.name}.go").exists():
        time.sleep(0.1)
    result = {"case": case.name, **asdict(case), "ready_s": ready, **measured(unet, inputs, case, device)}
    if device.type == "cuda":
        (folder / f"{case.name}.kernels").write_text(kernels(unet, inputs, case))
    temporary = folder / f"{case.name}.tmp"
    temporary.write_text(json.dumps(result))
    temporary.rename(folder / f"{case.name}.json")


def prepared_unet(case: Case, device: Any) -> tuple[Any, dict[str, Any]]:
    """The UNet of rank 0 with fake peers, ready to run, and inputs of a step."""
    from otil_exp.choices import Engine, GnSync, Parallelism, SyncMode
    from otil_exp.traffic import TrafficCounter
    from otil_exp.upstream import build_unet
    from otil_exp.upstream.kinds import StepKinds

    dtype = torch.float16 if device.type == "cuda" else torch.float32
    plain = random_unet(dtype, device)
    mode = SyncMode.corrected_async_gn if case.method == "distrifusion" else SyncMode.no_sync
    unet = build_unet(
        plain,
        fake_place(case, device),
        parallelism=Parallelism.none if case.method == "reference" else Parallelism.patch,
        sync_mode=None if case.method == "reference" else mode,
        gn_sync=GnSync(case.gn_sync),
        warmup_steps=WARMUP_STEPS,
        height=case.size,
        width=case.size,
        guidance=True,
        engine=Engine[case.engine],
        traffic=TrafficCounter(),
    )
    if case.engine == "compiled" and not case.both and len(unet._kinds.examples) == 2:  # compile the silent step alone
        unet._kinds = StepKinds((WARMUP_STEPS + 1,), lambda counter: 0)
    torch.manual_seed(1)
    text, pooled = plain.config.cross_attention_dim, plain.config.projection_class_embeddings_input_dim
    pooled -= 6 * plain.config.addition_time_embed_dim
    inputs: dict[str, Any] = {
        "sample": torch.randn(1, 4, case.size // 8, case.size // 8).repeat(2, 1, 1, 1).to(device, dtype),
        "timestep": torch.tensor(500.0, device=device),
        "encoder_hidden_states": torch.randn(2, 77, text).to(device, dtype),
        "added_cond_kwargs": {
            "text_embeds": torch.randn(2, pooled).to(device, dtype),
            "time_ids": torch.tensor([[case.size, case.size, 0, 0, case.size, case.size]] * 2).to(device, dtype),
        },
    }
    unet.prepare(**inputs)
    return unet, inputs


def random_unet(dtype: Any, device: Any) -> Any:
    """SDXL's UNet with seeded random weights; on a CPU that of the shapes model."""
    from diffusers import UNet2DConditionModel

    from otil_exp import loading
    from otil_exp.choices import Scheduler
    from otil_exp.config import ModelConfig

    if device.type == "cpu":
        return loading.load_pipeline(ModelConfig(name="shapes", source="package"), Scheduler.ddim, device).unet
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    with device:
        unet = UNet2DConditionModel(**loading.SDXL_UNET).eval()
    torch.set_default_dtype(torch.float32)
    return unet


def fake_place(case: Case, device: Any) -> Any:
    """Rank 0 of the topology, whose peers do nothing."""
    from torch import distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from otil_exp.topology import RankContext, Topology, single_rank

    if case.world_size == 1:
        return single_rank(device)
    if not dist.is_initialized():
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=case.world_size)
    topology = Topology(world_size=case.world_size, split_batch=case.split_batch)
    return RankContext(
        topology=topology,
        rank=0,
        local_rank=0,
        device=device,
        batch_group=dist.new_group(topology.batch_ranks(0)) if topology.slices > 1 else None,
        pair_group=dist.new_group(topology.pair_ranks(0)) if case.split_batch else None,
    )


def measured(unet: Any, inputs: dict[str, Any], case: Case, device: Any) -> dict[str, Any]:
    """Medians of a steady step and, if it is ready, of a synchronous one."""
    unet.begin(steps_of(case))
    result: dict[str, Any] = {}
    repeats = max(5, REPEATS * 1024 // case.size) if case.engine == "compiled" or case.world_size > 1 else 5
    with torch.no_grad():
        if case.both:
            result["synchronous_ms"], _ = _times(lambda: unet(**inputs), device, 2, skip=1)
        elif case.engine == "compiled":  # its context is there since it was prepared
            unet._next = WARMUP_STEPS + 1
        elif case.world_size > 1:  # upstream's text keys and values are there once a synchronous graph was replayed
            _times(lambda: unet(**inputs), device, WARMUP_STEPS, skip=1)
        result["step_ms"], result["host_ms"] = _times(lambda: unet(**inputs), device, repeats, skip=3)
        if device.type == "cuda":
            result["host_waits"] = host_waits(lambda: unet(**inputs))
        output = unet(**inputs).sample
    result["finite"] = bool(output.isfinite().all())
    result["output_std"] = float(output.float().std())
    result["runs_as"] = unet.runs_as
    result["peak_mib"] = torch.cuda.max_memory_allocated() / 2**20 if device.type == "cuda" else 0.0
    result["graphs"] = dict(torch._dynamo.utils.counters["stats"]).get("unique_graphs", 0)
    torch.save(output.cpu(), Path(sys.argv[-1]) / f"{case.name}.pt")
    return result


def steps_of(case: Case) -> Any:
    """More steps than any measurement takes."""
    from otil_exp.exchange import step_kinds

    return step_kinds(400, WARMUP_STEPS if case.world_size > 1 else -1)


def kernels(unet: Any, inputs: dict[str, Any], case: Case) -> str:
    """Where the GPU spends a steady step: kernels by total time."""
    from torch.profiler import ProfilerActivity, profile

    unet.begin(steps_of(case))
    unet._next = WARMUP_STEPS + 10
    with torch.no_grad(), profile(activities=[ProfilerActivity.CUDA]) as profiler:
        unet(**inputs)
        torch.cuda.synchronize()
    found = sorted(profiler.key_averages(), key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in found)
    lines = [f"{total / 1e3:.2f} ms in {sum(event.count for event in found)} kernels"]
    return "\n".join(lines + [f"{e.self_device_time_total:9.0f} us {e.count:5d} x {e.key[:110]}" for e in found[:45]])


def host_waits(run: Any) -> dict[str, int]:
    """Where a call makes the host wait for the GPU, and how often."""
    found: dict[str, int] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        run()
        torch.cuda.set_sync_debug_mode("default")
    for warning in caught:
        if "called a synchronizing" in str(warning.message):
            place = f"{'/'.join(Path(warning.filename).parts[-2:])}:{warning.lineno}"
            found[place] = found.get(place, 0) + 1
    return found


def _times(run: Any, device: Any, repeats: int, skip: int) -> tuple[float, float]:
    """Median milliseconds of a call, and of handing it to an idle GPU."""
    for _ in range(skip):
        run()
    if device.type == "cpu":
        own = []
        for _ in range(repeats):
            start = time.perf_counter()
            run()
            own.append(1e3 * (time.perf_counter() - start))
        return median(own), 0.0
    torch.cuda.synchronize()
    marks, host = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)], []
    marks[0].record()
    for mark in marks[1:]:
        run()
        mark.record()
    for _ in range(min(repeats, 3)):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        host.append(1e3 * (time.perf_counter() - start))
    torch.cuda.synchronize()
    return median(a.elapsed_time(b) for a, b in pairwise(marks)), median(host)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--list"]:
        print(*(case.name for case in CASES), sep="\n")
    elif sys.argv[1:2] == ["--case"]:
        run_case(Case(**json.loads(sys.argv[2])), Path(sys.argv[3]))
    elif not sys.argv[1:] or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    else:
        main(Path(sys.argv[1]), sys.argv[2:])
