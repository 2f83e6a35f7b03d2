"""Ranks of tests start with diffusers loaded; a test's own process uses one thread, as a rank does. For conftest.py."""

from multiprocessing import forkserver

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def preloaded_ranks() -> None:
    """Start the server that ranks fork from (tests/ranks.py) with diffusers in it: seconds a rank otherwise."""
    forkserver.set_forkserver_preload(["torch.distributed", "otil_exp.pipeline", "otil_exp.upstream.layers"])
    forkserver.ensure_running()


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
