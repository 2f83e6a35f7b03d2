"""Ranks over a limited link: what they send really takes so long, and their pictures are those of any link."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
import torch
from torch import distributed as dist

from composing import Compose, Typed
from otil_exp.cells.normal_form import effective
from otil_exp.cells.prepare import prepare
from otil_exp.cells.rules import validate
from otil_exp.job import Job
from otil_exp.launch import launch
from otil_exp.launch.narrow_link import COMMANDS, NarrowLink, obstacle
from otil_exp.topology import Topology, join, leave

MBIT = 40
NO_LINK = obstacle(NarrowLink(MBIT))
needs_link = pytest.mark.skipif(NO_LINK is not None, reason=f"no limited link here: {NO_LINK}")


def gathered(values: int) -> tuple[float, float, list[str]]:
    """Seconds in which two ranks get each other's fp32 values, their sum, and the addresses of this rank."""
    join(Topology(world_size=2, split_batch=False), "cpu", 60.0)
    own = torch.arange(values, dtype=torch.float32) % 7 + dist.get_rank()
    parts = [torch.empty(values) for _ in range(2)]
    dist.barrier()
    begun = time.monotonic()
    dist.all_gather(parts, own)
    seconds = time.monotonic() - begun
    said = subprocess.run(["ip", "-o", "-4", "address"], capture_output=True, text=True, check=True).stdout
    leave()
    return seconds, float(torch.stack(parts).double().sum()), sorted(line.split()[1] for line in said.splitlines())


@needs_link
@pytest.mark.ranks
def test_bytes_take_at_least_as_long_as_the_rate_says_arrive_whole_and_nothing_is_left_of_the_link() -> None:
    """4 MB at 40 Mb/s are 0.8 s; what may go at once and headers apart, no machine can be faster."""
    values, links = 1_000_000, ("ip", "-o", "link")
    before = subprocess.run(links, capture_output=True, text=True, check=True).stdout
    seconds, total, cards = launch(gathered, 2, values, threads=1, link=NarrowLink(MBIT))
    at_once = 3 * 65536  # the bucket, and what the card had taken before
    assert seconds >= (4 * values - at_once) * 8 / (MBIT * 1e6)
    plain = sum(i % 7 for i in range(values))
    assert total == 2 * plain + values
    assert cards == ["lo", "rank"]
    assert subprocess.run(links, capture_output=True, text=True, check=True).stdout == before


def after_a_pause(size: int) -> float:
    """Seconds from before a barrier until two ranks have got each other's bytes, the link idle before."""
    join(Topology(world_size=2, split_batch=False), "cpu", 60.0)
    parts = [torch.empty(size, dtype=torch.uint8) for _ in range(2)]
    dist.barrier()
    time.sleep(0.2)
    begun = time.monotonic()
    dist.barrier()
    dist.all_gather(parts, torch.zeros(size, dtype=torch.uint8))
    seconds = time.monotonic() - begun
    leave()
    return seconds


@needs_link
@pytest.mark.ranks
def test_a_layers_message_takes_its_time_after_a_pause_too() -> None:
    """60 KB at 10 Mb/s are 48 ms, of which a bucket may save what two packets take, at either end."""
    size, mbit = 60_000, 10
    assert launch(after_a_pause, 2, size, threads=1, link=NarrowLink(mbit)) >= (size - 2 * 3200) * 8 / (mbit * 1e6)


def test_ranks_that_others_start_have_no_limited_link(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="use device.link_mbit=0"):
        launch(gathered, 2, 10, link=NarrowLink(MBIT))


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("device.link_mbit=-1",), "such as device.link_mbit=1000"),
        (("device.link_mbit=0.0001",), "from 0.1 to 1000000, or 0"),
        (("device.link_mbit=nan",), "from 0.1 to 1000000, or 0"),
        (("device.link_delay_ms=1",), "use device.link_mbit=1000"),
        (("device.link_mbit=10", "device.link_delay_ms=-1"), "such as device.link_delay_ms=1"),
        (("device.link_mbit=10", "device.kind=cuda", "engine=eager"), "use device=cpu"),
    ],
)
def test_a_link_that_cannot_be_is_refused(typed: Typed, overrides: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        validate(typed("preset=otil", "topology=2gpu_nosplit", *overrides))


def test_what_this_machine_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program, or a queue of the kernel, here played by a program that fails as tc then does."""
    monkeypatch.setenv("PATH", str(tmp_path))
    said = "#!/bin/sh\necho 'Error: Specified qdisc kind is unknown.' >&2\nexit 2\n"
    for index, command in enumerate(COMMANDS):
        assert f"{', '.join(COMMANDS[index:])} is not on the PATH" in str(obstacle(NarrowLink(MBIT)))
        (tmp_path / command).write_text(said)
        (tmp_path / command).chmod(0o755)
    assert "Specified qdisc kind is unknown" in str(obstacle(NarrowLink(MBIT)))


@needs_link
@pytest.mark.ranks
def test_pictures_are_those_of_any_link(composed: Compose) -> None:
    pictures, names = [], []
    steps = ("model=shapes", "device=cpu", "num_inference_steps=2", "warmup_steps=0", "prompts.limit=1", "metrics=none")
    for mbit in (0, 200):
        cell = prepare(composed("preset=full_sync", "topology=2gpu_nosplit", *steps, f"device.link_mbit={mbit}"))
        failures: dict[str, str] = {}
        Job(say=lambda words: None).run([cell], failures)
        assert not failures
        pictures.append(cell.folder.image_path(0).read_bytes())
        names.append(cell.folder.path.name)
    assert pictures[0] == pictures[1]
    assert names[0] != names[1]


def test_a_rank_alone_has_no_link(typed: Typed) -> None:
    """The reference of a grid over a slow link is that of any other."""
    plain, limited = (
        effective(typed("preset=reference", "topology=1gpu", *more)) for more in ((), ("device.link_mbit=100",))
    )
    assert plain == limited


def test_two_queues_where_there_is_a_delay() -> None:
    """A token bucket of 1 ms, here 25 kB, behind the delay."""
    [bucket] = NarrowLink(200.0).queues
    assert bucket[bucket.index("burst") + 1] == "25000"
    delay, behind = NarrowLink(200.0, 2.5).queues
    assert "2.5ms" in delay
    assert behind[:2] == ["parent", "1:"]
    assert behind[-len(bucket[1:]) :] == bucket[1:]
