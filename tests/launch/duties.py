"""What the ranks of these tests do: a fresh process must be able to import it, and soon."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from typing import NoReturn

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")


def sum_of_ranks(timeout_s: float = 60.0) -> int:
    """What all ranks agree on."""
    import torch
    from torch import distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("gloo", timeout=timedelta(seconds=timeout_s))
    total = torch.tensor(dist.get_rank())
    dist.all_reduce(total)
    return int(total)


def gathered_environment() -> list[dict[str, str]]:
    """The launch variables and the thread count of every rank."""
    import torch
    from torch import distributed as dist

    sum_of_ranks()
    own = {name: os.environ[name] for name in VARIABLES} | {"threads": str(torch.get_num_threads())}
    everyone: list[dict[str, str]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(everyone, own)
    return everyone


def speak(word: str) -> str:
    """Say the word in every way there is, then return it."""
    import logging

    from torch import distributed as dist

    logging.getLogger("speaker").warning("logged %s", word)
    print(f"printed {word}")
    os.system(f"echo echoed {word}")
    sum_of_ranks()
    dist.destroy_process_group()
    return word


def rank_one_raises() -> None:
    sum_of_ranks()
    if os.environ["RANK"] == "1":
        raise ValueError("no such colour: bleen")
    sum_of_ranks()


def rank_two_is_killed() -> None:
    sum_of_ranks()
    if os.environ["RANK"] == "2":
        os.kill(os.getpid(), signal.SIGKILL)
    sum_of_ranks()


def rank_one_is_killed_while_others_hang(victim_signal: int) -> None:
    """The others wait for something that no lost connection interrupts, deaf to SIGTERM."""
    sum_of_ranks()
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), victim_signal)
    signal.signal(signal.SIGTERM, lambda *_: None)
    time.sleep(600)


def rank_one_is_late(timeout_s: float) -> None:
    sum_of_ranks(timeout_s)
    if os.environ["RANK"] == "1":
        time.sleep(600)
    sum_of_ranks()


def rank_one_exits(code: int) -> None:
    sum_of_ranks()
    if os.environ["RANK"] == "1":
        sys.exit(code)
    sum_of_ranks()


def wait_for_ever(ready: str) -> NoReturn:
    """Tell that this rank runs by an empty file named after its process, then wait in a collective or in sleep."""
    sum_of_ranks(600.0)
    open(f"{ready}/{os.getpid()}", "w").close()
    if os.environ["RANK"] == "0":
        sum_of_ranks()  # in C++, where Python handles no signal
    time.sleep(600)
    raise AssertionError("nobody ended the wait")
