"""What figures of a machine come to: fine, slow with what to do, or broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from otil_exp.links import Curve, Links
from otil_exp.selftest.capture import RIGHT, judge_capture
from otil_exp.selftest.collectives import judge_collectives
from otil_exp.selftest.copies import copies, judge_copies
from otil_exp.selftest.death import judge_death
from otil_exp.selftest.exchange_time import judge_exchange
from otil_exp.selftest.machine import judge_links, links_between, numbers
from otil_exp.selftest.plan import LeftOutError, Plan, State

CPU = Plan("cpu", 2, Path("unused"))
ONE_GPU = Plan("cuda", 1, Path("unused"))
TWO_GPUS = Plan("cuda", 2, Path("unused"))

NVLINK = """
\t\x1b[4mGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\tSYS\t0-31\t0\t\tN/A
GPU1\tNV18\t X \tPHB\t0-31\t0\t\tN/A
GPU2\tSYS\tPHB\t X \t0-31\t0\t\tN/A

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks
"""
"""The form of `nvidia-smi topo -m`: two GPUs joined by NVLink, and one that is not."""


def test_the_matrix_of_links_is_read_pair_by_pair() -> None:
    assert links_between(NVLINK, [0, 1, 2]) == {"0-1": "NV18", "0-2": "SYS", "1-2": "PHB"}
    assert links_between(NVLINK, [0, 1]) == {"0-1": "NV18"}
    assert links_between("", [0, 1]) == {}


@pytest.mark.parametrize(
    ("visible", "links"),
    [(None, "NV18"), ("0,1", "NV18"), ("1,2", "PHB"), ("2,0,1", "SYS"), ("GPU-8f3a,GPU-11bc", None)],
)
def test_the_links_are_those_of_the_visible_gpus(visible: str | None, links: str | None) -> None:
    assert links_between(NVLINK, numbers(visible, 2)).get("0-1") == links


@pytest.mark.parametrize(
    ("links", "access", "state", "words"),
    [
        ({"0-1": "NV18"}, True, State.fine, "every pair is joined by NVLink (NV18)"),
        ({"0-1": "NV18", "0-2": "SYS", "1-2": "NV18"}, True, State.slow, "pair 0-2 is joined by the link between two"),
        ({"0-1": "PIX"}, True, State.slow, "one PCIe switch (PIX), not by NVLink"),
        ({"0-1": "PHB"}, False, State.slow, "pairs 0-1 have no peer access"),
        ({}, True, State.fine, "nvidia-smi does not say"),
    ],
)
def test_links_say_whether_exchanging_is_cheap(links: dict[str, str], access: bool, state: State, words: str) -> None:
    count = 3 if len(links) == 3 else 2
    found, sentence = judge_links(links, [[access or a == b for b in range(count)] for a in range(count)])
    assert found is state
    assert words in sentence


def test_one_gpu_has_no_links() -> None:
    assert judge_links({}, [[True]])[0] is State.fine


def test_a_slow_way_to_the_host_is_named() -> None:
    fine = {"host to 0, GB/s": 55.0, "0 to host, GB/s": 54.0, "0 to 1, GB/s": 360.0, "1 to 0, GB/s": 361.0}
    found = judge_copies(fine)
    assert (found.state, found.sentence) == (State.fine, "host 54.0 to 55.0 GB/s, GPU to GPU 360.0 to 361.0 GB/s")
    slow = judge_copies(fine | {"host to 0, GB/s": 3.1})
    assert slow.state is State.slow
    assert "host to 0 is below 8" in slow.sentence
    with pytest.raises(LeftOutError):
        copies(CPU)


def links(*points: tuple[int, float]) -> Links:
    """Between two ranks; points of all_gather, in bytes and seconds."""
    curves = (Curve("point_to_point", 2, ((4096, 1e-4), (8192, 2e-4))), Curve("all_gather", 2, points))
    return Links(name="two", source="a test", date="2026-11-30", measured=True, curves=curves)


@pytest.mark.parametrize(
    ("ms", "state", "rate", "least", "advice"),
    [
        (1.368, State.fine, "196.2 GB/s", "2.2 ms at least (projection)", ""),  # 2**28 B / 1.368 ms; 435.97 MB at that
        (11.0, State.slow, "24.4 GB/s", "17.9 ms at least", "methods whose steady steps are silent"),
        (62.5, State.slow, "4.3 GB/s", "101.5 ms at least", "Split the batch alone"),
    ],
)
def test_the_rate_of_a_link_says_what_a_step_costs_and_what_to_do(
    ms: float, state: State, rate: str, least: str, advice: str
) -> None:
    """Two ranks: each sends 256 MiB."""
    found = judge_collectives(links((4096, 150e-6), (2**28, ms / 1e3)), TWO_GPUS)
    assert found.state is state
    for words in (rate, least, advice, "150 µs for 4096 bytes"):
        assert words in found.sentence
    assert found.figures["all_gather, ms by bytes"] == {"4096": 0.15, f"{2**28}": ms}
    on_a_cpu = judge_collectives(links((4096, 400e-6), (2**22, 9e-3)), CPU)
    assert on_a_cpu.state is State.fine
    assert "says nothing about GPUs" in on_a_cpu.sentence


def test_a_graph_that_does_not_hold_a_collective_is_broken_and_says_which() -> None:
    assert judge_capture({"all_gather": RIGHT, "all_reduce": RIGHT}).state is State.fine
    found = judge_capture({"all_gather": RIGHT, "all_reduce async_op": "replay of 2.0 is wrong: [2.0]"})
    assert found.state is State.broken
    assert "all_reduce async_op: replay of 2.0 is wrong" in found.sentence
    assert "all_gather: " not in found.sentence


def test_an_exchange_that_keeps_the_host_busy_is_slow() -> None:
    assert judge_exchange({"called": 900.0, "replayed": 150.0}, TWO_GPUS).state is State.fine
    assert judge_exchange({"called": 9000.0, "replayed": 150.0}, TWO_GPUS).state is State.slow
    assert judge_exchange({"called": 9000.0}, CPU).state is State.fine


FAILED = {"status": "failed", "failed_rank": 1, "error": "rank 1 was killed by SIGKILL"}


@pytest.mark.parametrize(
    ("code", "record", "state"),
    [
        (1, FAILED, State.fine),
        (None, FAILED, State.broken),  # it goes on
        (0, FAILED, State.broken),  # it says that all is well
        (1, FAILED | {"failed_rank": 0}, State.broken),
        (1, FAILED | {"status": "running"}, State.broken),
        (1, {}, State.broken),
    ],
)
def test_a_killed_rank_ends_its_job_and_is_named_or_the_machine_is_unfit(
    code: int | None, record: dict[str, object], state: State
) -> None:
    found = judge_death(code, 2.2, record, rank=1)
    assert found.state is state
    assert "rank 1 was killed" in found.sentence
    assert found.figures["seconds_to_end"] == 2.2


def test_one_gpu_is_shared_by_two_ranks() -> None:
    assert (ONE_GPU.kind, ONE_GPU.ranks) == ("shared_gpu", 2)
    assert (TWO_GPUS.kind, TWO_GPUS.ranks) == ("cuda", 2)
    assert (CPU.kind, CPU.ranks) == ("cpu", 2)
