"""What the host does while it hands a step in a CUDA graph to the GPU."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from diffusers import UNet2DConditionModel
from torch import Tensor

from benchmarks.one_gpu_speed.cases import whole
from benchmarks.one_gpu_speed.rank import prepared_unet, step_inputs
from otil_exp.rank_unet.inputs import StepInputs, predict

SIZES = (1024, 2048, 3840)
"""Pixels; one_gpu_speed saw a quick launch, a slow one of the compiled UNet alone, and slow ones."""

REPEATS = 3

BUSY_CYCLES = 200_000_000
"""Of a kernel in whose shadow a graph is launched: about 0.1 s."""

KERNEL_CYCLES = 200_000
"""Of one kernel of a chain: about 0.1 ms."""

LENGTHS = (100, 500, 1000, 2000, 4000)
"""Kernels of a chain."""

MEMSETS = (400, 500, 520, 600, 800)
"""Memsets of a chain, each with a kernel before it: diffusers' UNet has 223, 501 and 761, by size."""


def whole_unets(unet: UNet2DConditionModel) -> dict[str, Any]:
    """diffusers' UNet in a graph, by size: one batch with guidance."""
    found = {}
    for size in SIZES:
        inputs = StepInputs(**step_inputs(unet.config, size, unet.dtype, unet.device))
        found[f"{size}"] = launched(partial(predict, unet), inputs)
        torch.cuda.empty_cache()
    return found


def compiled_unet() -> dict[str, Any]:
    """The whole UNet as a run compiles it, at 2048²."""
    start = time.perf_counter()
    unet, inputs = prepared_unet(whole("compiled", 2048), torch.device("cuda"))
    ready_s = time.perf_counter() - start
    return {"ready_s": ready_s} | launched(unet.method._layers, StepInputs(**inputs))


def launched(call: Callable[[StepInputs], Tensor], inputs: StepInputs) -> dict[str, Any]:
    """Host milliseconds of each part of a replayed step, as otil_exp.rank_unet.engine.CudaGraphs does them."""
    static = inputs.static()
    graph, output = _graph(lambda: call(static))
    parts = {"copy in": lambda: static.overwrite(inputs), "launch": graph.replay, "copy out": output.clone}
    return {"nodes": _nodes(graph)} | _timed(parts)


def chains() -> dict[str, Any]:
    """Graphs of kernels that wait, by their number, and of those with a copy or a memset after each."""
    numbers = torch.zeros(2, 1 << 16, device="cuda")
    operations: dict[str, tuple[int, Callable[[], object]]] = {
        **{f"{length} kernels": (length, lambda: None) for length in LENGTHS},
        "1000 kernels and copies": (1000, lambda: numbers[0].copy_(numbers[1])),
        **{f"{length} kernels and memsets": (length, partial(_memset, numbers)) for length in MEMSETS},
    }
    found = {}
    for name, (length, operation) in operations.items():
        graph, _ = _graph(partial(_chain, length, operation))
        found[name] = {"nodes": _nodes(graph)} | _timed({"launch": graph.replay})
    return found


def _chain(length: int, operation: Callable[[], object]) -> None:
    for _ in range(length):
        torch.cuda._sleep(KERNEL_CYCLES)
        operation()


def _memset(numbers: Tensor) -> None:
    """As cuDNN and cuBLAS clear what they count in; PyTorch's own zero_ is a kernel."""
    from cuda.bindings import runtime

    stream = torch.cuda.current_stream().cuda_stream
    error, *_ = runtime.cudaMemsetAsync(numbers.data_ptr(), 0, numbers.nbytes, stream)
    assert error == runtime.cudaError_t.cudaSuccess, error


def _graph(call: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
    """A recorded call that still knows its nodes, and its output; replayed once, so that it lies on the GPU."""
    call()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        output = call()
    graph.instantiate()
    graph.replay()
    return graph, output


def _timed(parts: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median host milliseconds of each part, handed to an idle GPU; of all of them, to a busy one; and the GPU's own.

    If the host waits in a launch until the GPU has come to some point of the graph, it waits longer behind a busy GPU,
    by as long as that is busy. If it works for itself, it does not.
    """
    rounds, gpu = [], []
    for _ in range(REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        rounds.append({name: _host_ms(part) for name, part in parts.items()})
        end.record()
        torch.cuda.synchronize()
        gpu.append(start.elapsed_time(end))
    found = {f"{name}, host ms": median(one[name] for one in rounds) for name in parts}
    busy_ms, behind_ms = _behind(parts)
    return found | {"GPU ms": median(gpu), "host ms behind a busy GPU": behind_ms, "the GPU was busy for ms": busy_ms}


def _behind(parts: dict[str, Callable[[], object]]) -> tuple[float, float]:
    """Milliseconds that a kernel keeps the GPU busy, and those that the host needs for all parts meanwhile."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.cuda._sleep(BUSY_CYCLES)
    end.record()
    behind_ms = sum(_host_ms(part) for part in parts.values())
    torch.cuda.synchronize()
    return start.elapsed_time(end), behind_ms


def _host_ms(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - start)


def _nodes(graph: torch.cuda.CUDAGraph) -> dict[str, int] | str:
    """Nodes of a graph by kind, such as Kernel, Memcpy and Memset."""
    try:
        from cuda.bindings import runtime
    except ImportError:
        return "not counted: cuda-bindings is not installed"
    raw = graph.raw_cuda_graph()
    error, _, number = runtime.cudaGraphGetNodes(raw)
    if error != runtime.cudaError_t.cudaSuccess:
        return f"not counted: {error}"
    _, nodes, _ = runtime.cudaGraphGetNodes(raw, number)
    kinds = Counter(runtime.cudaGraphNodeGetType(node)[1].name for node in nodes)
    return {kind.removeprefix("cudaGraphNodeType"): count for kind, count in kinds.items()}
