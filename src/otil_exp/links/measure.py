"""Measure a machine's links: called by every rank of a process group, on gloo or NCCL."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from statistics import median

import torch
from torch import Tensor
from torch import distributed as dist

from otil_exp.cuda_graphs import CudaGraphRecorder
from otil_exp.links.link import Curve, Links

SIZES = tuple(4096 * 4**power for power in range(9))
"""Bytes: 4 KiB to 256 MiB in factors of four."""

WARM_UP = 3
"""Untimed calls of a size: communicators and buffers start up in them."""

IN_GRAPH = 16
"""Operations in the CUDA graph that tells the wire's latency from the host's call."""

Operation = Callable[[int], Callable[[], object]]
"""Given bytes, makes the buffers and returns the call."""


def measure_links(
    name: str,
    device: torch.device,
    *,
    sizes: Sequence[int] = SIZES,
    repeats: int = 20,
    budget_s: float = 60.0,
) -> Links:
    """The links of the default process group; all its ranks call it, and all get the same.

    device: this rank's, on which the buffers lie. sizes: bytes, rising. repeats: timed calls of a size, after WARM_UP
    untimed ones; their median counts, of the rank where it is largest. budget_s: seconds for all operations; sizes that
    would take longer are left out, at least two are measured. On a GPU times are those of CUDA events.
    """
    world_size = dist.get_world_size()
    assert world_size > 1, "there is no link to measure"
    assert len(sizes) > 1, "a curve takes two sizes"
    operations = _operations(device)
    curves = []
    for operation, make in operations.items():
        points = _points(make, sizes, repeats, budget_s / len(operations), device)
        curves.append(Curve(operation, world_size, tuple(points)))
    first = curves[0].points[0]
    on_wire = _replayed_s(operations[curves[0].operation](first[0]), repeats, device)
    return Links(
        name=name,
        source=_machine(device),
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        measured=True,
        curves=tuple(curves),
        host_s=0.0 if on_wire is None else round(max(first[1] - on_wire, 0.0), 9),
    )


def _operations(device: torch.device) -> dict[str, Operation]:
    """The operations that methods use, each as its time is thought of in `otil_exp.links.link.WIRE_BYTES`."""
    world_size, rank = dist.get_world_size(), dist.get_rank()

    def buffer(size: int) -> Tensor:
        return torch.ones(size, dtype=torch.uint8, device=device)

    def all_gather(size: int) -> Callable[[], object]:
        own, parts = buffer(size), list(buffer(size * world_size).chunk(world_size))
        return lambda: dist.all_gather(parts, own)

    def all_reduce(size: int) -> Callable[[], object]:
        own = torch.zeros(size // 4, device=device)  # float32, as sums are made of
        return lambda: dist.all_reduce(own)

    def broadcast(size: int) -> Callable[[], object]:
        own = buffer(size)
        return lambda: dist.broadcast(own, src=0)

    def point_to_point(size: int) -> Callable[[], object]:
        own, other = buffer(size), buffer(size)

        def swap() -> None:
            """Send to the next rank while that of before sends here."""
            give = dist.P2POp(dist.isend, own, (rank + 1) % world_size)
            take = dist.P2POp(dist.irecv, other, (rank - 1) % world_size)
            for work in dist.batch_isend_irecv([give, take]):
                work.wait()

        return swap

    return {
        "all_gather": all_gather,
        "all_reduce": all_reduce,
        "broadcast": broadcast,
        "point_to_point": point_to_point,
    }


def _points(
    make: Operation, sizes: Sequence[int], repeats: int, budget_s: float, device: torch.device
) -> list[tuple[int, float]]:
    begun, points = time.monotonic(), list[tuple[int, float]]()
    for size in sizes:
        if len(points) > 1:
            (smaller, _), (before, seconds) = points[-2:]
            next_takes = (WARM_UP + repeats) * seconds * max(size / before, before / smaller)
            if _largest(time.monotonic() - begun + next_takes, device) > budget_s:
                break
        call = make(size)
        for _ in range(WARM_UP):
            call()
        samples = [_timed(call, device) for _ in range(repeats)]
        points.append((size, round(_largest(median(samples), device), 9)))
    return points


def _timed(call: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call that all ranks make together."""
    _meet(device)
    if device.type != "cuda":
        begun = time.perf_counter()
        call()
        return time.perf_counter() - begun
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    torch.cuda.synchronize(device)
    return start.elapsed_time(end) / 1e3


def _replayed_s(call: Callable[[], object], repeats: int, device: torch.device) -> float | None:
    """Seconds of an operation in a CUDA graph, which the host does not call; None where there are no graphs."""
    if device.type != "cuda" or dist.get_backend() != "nccl":
        return None

    def several() -> Tensor:
        for _ in range(IN_GRAPH):
            call()
        return torch.zeros(1, device=device)

    several()
    captured = CudaGraphRecorder()(several)
    captured.replay()
    samples = [_timed(captured.replay, device) for _ in range(repeats)]
    return _largest(median(samples), device) / IN_GRAPH


def _meet(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        dist.barrier(device_ids=[device.index or 0] if dist.get_backend() == "nccl" else None)
        torch.cuda.synchronize(device)
    else:
        dist.barrier()


def _largest(value: float, device: torch.device) -> float:
    """Of all ranks, so that they go on alike."""
    shared = torch.tensor([value], dtype=torch.float64, device=device)
    dist.all_reduce(shared, op=dist.ReduceOp.MAX)
    return float(shared.item())


def _machine(device: torch.device) -> str:
    """What was measured: device, ranks, host, backend and versions."""
    backend = str(dist.get_backend())
    what = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    version = f" {'.'.join(map(str, torch.cuda.nccl.version()))}" if backend == "nccl" else ""
    return f"{dist.get_world_size()} ranks on {what}, {platform.node()}; {backend}{version}, torch {torch.__version__}"
