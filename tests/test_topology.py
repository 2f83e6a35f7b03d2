"""Rank <-> (batch half, slice), groups and devices."""

from __future__ import annotations

import os
import signal
import socket
import time
from dataclasses import asdict

import pytest
import torch
from torch import distributed as dist

from otil_exp import topology as t
from otil_exp.topology import Topology, resolve_device
from ranks import run_ranks


@pytest.mark.parametrize(
    ("world_size", "split_batch", "places"),
    [
        (1, False, [(0, 0)]),
        (2, True, [(0, 0), (1, 0)]),
        (2, False, [(0, 0), (0, 1)]),
        (3, False, [(0, 0), (0, 1), (0, 2)]),
        (4, True, [(0, 0), (0, 1), (1, 0), (1, 1)]),
        (6, True, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]),
        (8, True, [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)]),
    ],
)
def test_the_first_ranks_hold_the_unconditional_half(
    world_size: int, split_batch: bool, places: list[tuple[int, int]]
) -> None:
    topology = Topology(world_size=world_size, split_batch=split_batch)
    assert [(topology.batch_half(r), topology.slice_index(r)) for r in range(world_size)] == places


def test_groups_of_six_ranks() -> None:
    topology = Topology(world_size=6, split_batch=True)
    assert [topology.batch_ranks(half) for half in (0, 1)] == [[0, 1, 2], [3, 4, 5]]
    assert [topology.pair_ranks(i) for i in range(3)] == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize("world_size", [1, 3])
def test_a_split_batch_needs_an_even_number_of_ranks(world_size: int) -> None:
    with pytest.raises(ValueError, match=f"world_size={world_size + 1}"):
        Topology(world_size=world_size, split_batch=True)


def test_no_rank_is_no_run() -> None:
    with pytest.raises(ValueError, match="at least one rank"):
        Topology(world_size=0, split_batch=False)


@pytest.mark.parametrize(
    ("kind", "visible", "local_rank", "index"),
    [
        ("cuda", 8, 3, 3),
        ("cuda", 1, 3, 0),  # a scheduler that shows each task its own GPU only: it is cuda:0 whatever the local rank
        ("shared_gpu", 8, 3, 0),
    ],
)
def test_a_gpu_is_chosen_by_local_rank(
    monkeypatch: pytest.MonkeyPatch, kind: str, visible: int, local_rank: int, index: int
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: visible)
    assert t.device_of(kind, local_rank) == torch.device("cuda", index)


@pytest.mark.parametrize(
    ("kind", "gpus", "settled"),
    [("auto", 0, "cpu"), ("auto", 4, "cuda"), ("cpu", 4, "cpu"), ("shared_gpu", 1, "shared_gpu")],
)
def test_auto_takes_gpus_where_there_are_some(
    monkeypatch: pytest.MonkeyPatch, kind: str, gpus: int, settled: str
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert resolve_device(kind, world_size=4) == settled


@pytest.mark.parametrize(
    ("kind", "gpus", "sentence"),
    [("cuda", 0, "device=cpu"), ("auto", 2, "topology of 2"), ("shared_gpu", 0, "device=cpu")],
)
def test_too_few_gpus_are_refused_with_the_alternatives(
    monkeypatch: pytest.MonkeyPatch, kind: str, gpus: int, sentence: str
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(ValueError, match=sentence) as refused:
        resolve_device(kind, world_size=4)
    assert gpus or "shared_gpu (" not in str(refused.value)  # what is refused next is no advice


def test_a_node_of_a_larger_job_needs_gpus_for_its_own_ranks_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert resolve_device("cuda", world_size=8) == "cuda"


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def sums_over_own_groups(rank: int, port: str, split_batch: bool) -> tuple[dict, int, int]:
    """Sum the rank numbers over the batch group and over the pair group of this rank."""
    dist.destroy_process_group()  # the harness made one; join makes its own
    os.environ.update(RANK=str(rank), WORLD_SIZE="4", LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    ranks = t.join(Topology(world_size=4, split_batch=split_batch), "cpu", timeout_s=30)
    sums = []
    for group in (ranks.batch_group, ranks.pair_group):
        value = torch.tensor(ranks.rank)
        if group is not None:
            dist.all_reduce(value, group=group)
        sums.append(int(value))
    place = asdict(ranks.topology) | {"half": ranks.batch_half, "slice": ranks.slice_index}
    t.leave()
    return place, sums[0], sums[1]


@pytest.mark.ranks
def test_joined_ranks_talk_in_their_own_groups() -> None:
    """Split: halves {0,1} and {2,3}, pairs {0,2} and {1,3}; not split: one group of all, no pair."""
    split = run_ranks(4, sums_over_own_groups, free_port(), True)
    assert [result[1:] for result in split] == [(1, 2), (1, 4), (5, 2), (5, 4)]
    whole = run_ranks(4, sums_over_own_groups, free_port(), False)
    assert [result[1:] for result in whole] == [(6, r) for r in range(4)]


def joins_twice(rank: int) -> str:
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank))
    try:
        t.join(Topology(world_size=2, split_batch=False), "cpu", timeout_s=30)
    except RuntimeError as error:
        return str(error)
    return "no error"


@pytest.mark.ranks
def test_a_second_process_group_in_one_process_is_refused() -> None:
    """distrifuser's DistriConfig would go on as one rank on one GPU here, and a grid would record it as two."""
    assert all("fresh processes" in said for said in run_ranks(2, joins_twice))


def test_processes_that_contradict_the_topology_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match="2 processes were started for a topology of 4"):
        t.join(Topology(world_size=4, split_batch=False), "cpu", timeout_s=30)


BOUND_S = 2.0


def waits_for_a_stopped_rank(rank: int, port: str, stopped: int) -> dict[str, float]:
    """Seconds that this rank waits in each group it shares with a rank that is stopped meanwhile (SIGSTOP)."""
    pids: list[int] = [0] * 4
    dist.all_gather_object(pids, os.getpid())
    dist.destroy_process_group()  # the harness made one; join makes its own
    os.environ.update(RANK=str(rank), WORLD_SIZE="4", LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    ranks = t.join(Topology(world_size=4, split_batch=True), "cpu", timeout_s=BOUND_S)
    groups = {"all": dist.group.WORLD, "batch": ranks.batch_group, "pair": ranks.pair_group}
    t.meet()
    if rank == stopped:
        os.kill(os.getpid(), signal.SIGSTOP)  # until rank 0 or 1, whichever is not stopped, goes on with it
        return {}
    waited = {}
    for name, group in groups.items():
        if stopped not in dist.get_process_group_ranks(group):
            continue
        start = time.monotonic()
        with pytest.raises(RuntimeError):
            dist.all_reduce(torch.ones(1), group=group)
        waited[name] = time.monotonic() - start
    if rank == (1 if stopped == 0 else 0):
        time.sleep(3 * BOUND_S)  # the others are done as well
        os.kill(pids[stopped], signal.SIGCONT)
    return waited


@pytest.mark.ranks
@pytest.mark.parametrize("stopped", [0, 3])
def test_every_group_gives_up_on_a_stopped_rank_in_the_bound(stopped: int) -> None:
    """Split batch: rank 3 is in batch {2,3} and pair {1,3}, rank 0 in {0,1} and {0,2}. torch's own bound is 30 min."""
    waited = run_ranks(4, waits_for_a_stopped_rank, free_port(), stopped)
    batch_peer, pair_peer = (1, 2) if stopped == 0 else (2, 1)
    assert set(waited[batch_peer]) == {"all", "batch"}
    assert set(waited[pair_peer]) == {"all", "pair"}
    assert all(seconds < 60 for own in waited for seconds in own.values())


@pytest.mark.parametrize(
    ("visible", "count", "local_rank", "left"),
    [
        (None, 4, 2, "2"),
        ("4,5, 6,7", 4, 2, "6"),
        ("GPU-a,GPU-b", 2, 0, "GPU-a"),
        (None, 1, 3, None),  # a scheduler shows each task its own GPU only
        ("5", 1, 0, "5"),
    ],
)
def test_a_rank_may_see_its_own_gpu_only(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, count: int, local_rank: int, left: str | None
) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", t.ALL_VISIBLE):
        monkeypatch.delenv(name, raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    t.see_one_gpu(local_rank)
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == left
    assert os.environ.get(t.ALL_VISIBLE) == (None if count == 1 else visible or "0,1,2,3")


def test_a_process_that_uses_cuda_goes_on_seeing_what_it_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    t.see_one_gpu(2)
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
