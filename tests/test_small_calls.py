"""Kernels for small calls compute what float64 does, and the script that times them outlives a candidate that fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

if torch.cuda.is_available():  # elsewhere they would be interpreted, which is for processes of their own
    from benchmarks.small_calls.kernels.group_norm import group_norm, spread_group_norm
    from benchmarks.small_calls.kernels.query_attention import plain_attention, query_attention
    from benchmarks.small_calls.kernels.split_product import split_product
    from benchmarks.small_calls.kernels.text_attention import text_attention

ROOT = Path(__file__).parents[1]
HALF = 2e-3
"""Of the largest value: a few roundings to fp16."""

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def run_without_gpu(folder: Path, *command: str) -> list[dict[str, Any]]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), str(ROOT / "tests")])
    variables = os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, *command, str(folder)], env=variables, cwd=ROOT, check=True, timeout=400)
    found: list[dict[str, Any]] = json.loads((folder / "results.json").read_text())["results"]
    return found


@pytest.mark.usefixtures("fresh_processes")  # Triton interprets only if it is told so before it is loaded
def test_without_a_gpu_every_kernel_is_interpreted_and_right(tmp_path: Path) -> None:
    found = run_without_gpu(tmp_path, "-m", "benchmarks.small_calls")
    assert [one for one in found if "failed" in one] == []
    assert {one["family"] for one in found if one["error"] > HALF} == set()
    ours = {one["family"] for one in found if "ours" in one["family"]}
    assert ours == {
        *("one kernel of ours", "one kernel of ours, cuBLAS", "ours", "ours, heads in one piece"),
        *("ours, split", "ours, not split", "ours, a program a group", "ours, pixels spread"),
    }


@pytest.mark.usefixtures("fresh_processes")
def test_a_candidate_that_fails_or_ends_its_process_costs_only_itself(tmp_path: Path) -> None:
    failing, ending, working, off = run_without_gpu(tmp_path, str(ROOT / "tests" / "small_calls_faults.py"), "parent")
    assert failing["failed"] == "RuntimeError: no such luck"
    assert ending["failed"] == "ended its process, or took too long"
    assert working["error"] == 0
    assert off["error"] == 0.25
    table = (tmp_path / "table.md").read_text()
    assert "| doubling: 3 values | 1000 | fails | RuntimeError: no such luck | | 0.50 | |" in table
    assert f"| works | {working['us']:.2f} | {working['us']:.3f} | 0.50 | 0.0e+00 |" in table


def normal(*shape: int, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(*shape, device="cuda") * scale).half()


def replayed(call: Any, *tensors: torch.Tensor | None) -> torch.Tensor:
    """What a CUDA graph of a compiled call leaves the third time."""
    torch.compiler.reset()  # PyTorch keeps so many graphs of one function
    compiled = torch.compile(call, fullgraph=True, dynamic=False)
    compiled(*tensors)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result: torch.Tensor = compiled(*tensors)
    for _ in range(3):
        result.zero_()
        graph.replay()
    return result


def assert_near(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.shape == expected.shape
    assert found.dtype == torch.float16
    assert (found.double() - expected).abs().max() <= HALF * expected.abs().max()


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize(("queries", "keys"), [(512, 77), (100, 77), (33, 128), (16, 16), (64, 5)])
def test_attention_compiled_and_replayed(queries: int, keys: int) -> None:
    n, heads, dim, width = 2, 3, 64, 192
    tokens, weight = normal(n, queries, width), normal(width, width, scale=width**-0.5)
    key, value = (one.unflatten(-1, (heads, dim)).transpose(1, 2) for one in normal(n, keys, 2 * width).chunk(2, -1))
    query = F.linear(tokens, weight).unflatten(-1, (heads, dim)).transpose(1, 2)
    exact = [one.double() for one in (query, key, value)]
    for rows, warps in ((32, 4), (64, 4), (128, 8)):
        found = replayed(lambda q, k, v, c=(rows, warps): text_attention(q, k, v, *c), query, key, value)
        assert_near(found, plain_attention(*exact))
    exact[0] = (tokens.double() @ weight.double().t()).unflatten(-1, (heads, dim)).transpose(1, 2)
    for config in ((64, 64, 4, 4, False), (128, 64, 8, 4, True)):
        found = replayed(lambda *one, c=config: query_attention(*one, *c), tokens, weight, key, value)
        assert_near(found, plain_attention(*exact))


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("splits", [1, 2, 3])
def test_a_split_product_compiled_and_replayed(splits: int, finished: bool) -> None:
    m, k, n = 300, 320, 200  # no whole tiles, and five steps for two or three
    x, weight = normal(m, k), normal(n, k, scale=k**-0.5)
    bias, residual = (normal(n), normal(m, n)) if finished else (None, None)
    expected = x.double() @ weight.double().t()
    if bias is not None and residual is not None:
        expected = expected + bias.double() + residual.double()
    arrived = torch.zeros(64, dtype=torch.int32, device="cuda")

    def call(*one: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = split_product(*one, splits, 64, 128, 64, 4, 4)
        return result

    found = replayed(call, x, weight, bias, residual, arrived)
    assert_near(found, expected)
    assert not arrived.any()
    assert torch.equal(found, call(x, weight, bias, residual, arrived))  # bit for bit, whoever comes last


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("halos", [False, True])
@pytest.mark.parametrize("shape", [(1, 320, 32, 128), (2, 96, 3, 5)])
def test_group_norm_compiled_and_replayed(shape: tuple[int, int, int, int], halos: bool) -> None:
    n, c, _, w = shape
    x = (3 * normal(*shape) + 10).contiguous(memory_format=torch.channels_last)
    weight, bias = normal(c), normal(c)
    edges = normal(2, n, 1, w, c).permute(0, 1, 4, 2, 3) if halos else None
    expected = F.silu(F.group_norm(x.double(), 32, weight.double(), bias.double(), 1e-5))
    if edges is not None:
        expected = torch.cat([edges[0].double(), expected, edges[1].double()], dim=2)
    for kernel in (group_norm, spread_group_norm):
        found = replayed(lambda *one, k=kernel: k(*one, 32, 1e-5, True, 32, 8), x, weight, bias, edges)
        assert_near(found, expected)
        assert found.is_contiguous(memory_format=torch.channels_last)
