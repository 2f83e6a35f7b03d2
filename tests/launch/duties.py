"""What the ranks of these tests do: a fresh process must be able to import it, and soon."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import time
import warnings
from datetime import timedelta
from pathlib import Path

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")


def collector() -> tuple[bool, int]:
    """Whether Python's garbage collector runs, and how many objects it leaves out."""
    return gc.isenabled(), gc.get_freeze_count()


def sum_of_ranks(timeout_s: float = 60.0) -> int:
    """What all ranks agree on; the first call joins the process group."""
    import torch
    from torch import distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("gloo", timeout=timedelta(seconds=timeout_s))
    total = torch.tensor(dist.get_rank())
    dist.all_reduce(total)
    return int(total)


def gathered_environment() -> list[dict[str, str]]:
    """The launch variables and the number of threads of every rank."""
    import torch
    from torch import distributed as dist

    sum_of_ranks()
    own = {name: os.environ[name] for name in VARIABLES} | {"threads": str(torch.get_num_threads())}
    everyone: list[dict[str, str]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(everyone, own)
    dist.destroy_process_group()
    return everyone


def process_id() -> int:
    return os.getpid()


def speak(word: str) -> None:
    """Say the word in every way there is."""
    logging.getLogger("speaker").warning("logged %s", word)
    warnings.warn(f"warned {word}", stacklevel=1)
    print(f"printed {word}")
    os.system(f"echo echoed {word}")


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


def rank_one_is_terminated_and_rank_zero_is_deaf() -> None:
    """Rank 0 waits for something that no lost connection interrupts, and does not listen to SIGTERM."""
    sum_of_ranks()
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGTERM)
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


def wait_for_ever(folder: str) -> None:
    """Say in folder/<process id> that this rank runs, then wait: rank 0 in a collective, the others asleep."""
    sum_of_ranks(600.0)
    Path(folder, str(os.getpid())).touch()
    if os.environ["RANK"] == "0":
        sum_of_ranks()  # in C++, where Python handles no signal
    time.sleep(600)


def rank_one_is_stopped(timeout_s: float) -> None:
    sum_of_ranks(timeout_s)
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGSTOP)
    sum_of_ranks()
