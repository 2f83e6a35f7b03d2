"""python server.py SOCKET OWNER: forks processes that have the libraries loaded (stand_in.py has the asking side).

It loads nothing of ours, runs no thread, and ends with the process OWNER.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import traceback
import types
from pathlib import Path
from typing import Any, NoReturn

from stand_in import HANDED_ON, RANK, VARIABLE, surroundings

LIBRARIES = (
    *("torch", "torch.distributed", "torch.distributed.run", "torch.distributed.launcher.api", "torch._dynamo"),
    *("torchvision", "torchmetrics.functional.image", "scipy.stats", "PIL.Image", "yaml", "rich.console", "jinja2"),
    *("hydra", "hydra.core.plugins", "hydra._internal.hydra", "omegaconf", "submitit", "diffusers"),
    "diffusers.pipelines.stable_diffusion_xl.pipeline_stable_diffusion_xl",
    "diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion",
    *("diffusers.schedulers.scheduling_ddim", "diffusers.schedulers.scheduling_euler_discrete"),
    "diffusers.schedulers.scheduling_dpmsolver_multistep",
    *("transformers.models.clip.modeling_clip", "transformers.models.clip.tokenization_clip"),
)
"""What is loaded."""

OWNER_POLL_S = 1.0


class Server:
    """Forks, says how processes ended, and ends those whose stand-ins have gone."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(f"{place}.new")
        self.listener.listen(64)
        os.rename(f"{place}.new", place)
        self.waker, self.woken = socket.socketpair()  # by the end of a process
        self.woken.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.woken.fileno(), warn_on_full_buffer=False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.selector.register(self.waker, selectors.EVENT_READ)
        self.running: dict[int, socket.socket] = {}
        """Connections to stand-ins, by process."""

    def serve(self, owner: int) -> None:
        """Until the owner has ended."""
        while Path(f"/proc/{owner}").exists():
            for key, _ in self.selector.select(OWNER_POLL_S):
                if key.fileobj is self.listener:
                    self._fork()
                elif key.fileobj is self.waker:
                    self.waker.recv(4096)
                else:  # a stand-in has gone
                    self.selector.unregister(key.fileobj)
                    kill(key.data)
            for child in [*self.running]:
                self._say_how_it_ended(child)
        for child in self.running:
            kill(child)

    def _fork(self) -> None:
        connection, _ = self.listener.accept()
        request, streams = asked(connection)
        child = os.fork() if request["surroundings"] == surroundings() else None
        if child == 0:
            self.selector.close()
            for own in (self.listener, self.waker, self.woken, connection, *self.running.values()):
                own.close()
            become(request, streams)
        for stream in streams:
            os.close(stream)
        if child is None:
            connection.close()
            return
        Path(f"{self.place}.{request['pid']}").write_text(str(child))
        connection.sendall(b"%d\n" % child)
        self.running[child] = connection
        self.selector.register(connection, selectors.EVENT_READ, child)

    def _say_how_it_ended(self, child: int) -> None:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            connection = self.running.pop(child)
            with contextlib.suppress(KeyError):
                self.selector.unregister(connection)
            with contextlib.suppress(OSError):
                connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
            connection.close()


def kill(child: int) -> None:
    """End a process, and what it started in its session."""
    for end in (os.kill, os.killpg):
        with contextlib.suppress(ProcessLookupError):
            end(child, signal.SIGKILL)


def asked(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What a stand-in asks for, and its three streams."""
    head, streams, _, _ = socket.recv_fds(connection, 12, 3)
    data = b""
    while len(data) < int(head):
        data += connection.recv(int(head) - len(data))
    return json.loads(data), streams


def become(request: dict[str, Any], streams: list[int]) -> NoReturn:
    """What the stand-in would have been."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, *HANDED_ON):
        signal.signal(number, signal.SIG_IGN if number in request["ignored"] else signal.SIG_DFL)
    if signal.SIGINT not in request["ignored"]:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, request["blocked"])
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    unbuffered = "-u" in request["orig_argv"][1:2] or bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdout.reconfigure(line_buffering=os.isatty(1), write_through=unbuffered)  # type: ignore[union-attr]
    sys.path[:] = request["path"]
    sys.orig_argv[:], sys.executable = request["orig_argv"], request["executable"]
    os.getppid = lambda: request["parent"]
    kind, what, arguments = request["run"]
    sys.argv = [f"-{kind}", *arguments]
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()
    end(lambda: run(kind, what))


def run(kind: str, what: str) -> None:
    import random

    import numpy
    import torch

    random.seed()
    numpy.random.seed()
    if os.environ.get("OMP_NUM_THREADS", "").isdecimal():
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    place = os.environ.pop(VARIABLE)  # else it would ask for another process
    with contextlib.suppress(ImportError):
        importlib.import_module("sitecustomize")
    os.environ[VARIABLE] = place
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    module.__builtins__ = __builtins__  # type: ignore[attr-defined]
    if kind == "m":
        run_module(what, module)
        return
    if RANK in what:
        sys.path[:] = sys.argv[2:]
        threads_are_set_late()
    exec(compile(what, "<string>", "exec"), module.__dict__)


def run_module(name: str, main: types.ModuleType) -> None:
    """As python -m does, without the frames of runpy: torch's launcher asks for its callers again and again, and
    inspect looks through all modules for the source of a frame that is in no file."""
    _, spec, code = runpy._get_module_details(name)  # type: ignore[attr-defined]
    sys.argv[0] = main.__file__ = spec.origin
    main.__spec__, main.__package__, main.__loader__ = spec, spec.parent, spec.loader
    exec(code, main.__dict__)


def threads_are_set_late() -> None:
    """A rank sets OMP_NUM_THREADS before it loads torch, which is here already."""
    import torch

    from otil_exp.launch import rank

    call = rank._call

    def call_with_threads(duty: rank.Duty) -> bytes:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        return call(duty)

    rank._call = call_with_threads


def end(work: Any) -> NoReturn:
    """Do the work and end as Python ends."""
    try:
        work()
    except SystemExit:
        raise
    except KeyboardInterrupt:
        traceback.print_exc()
        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
    sys.exit(0)


if __name__ == "__main__":
    for library in LIBRARIES:
        importlib.import_module(library)
    gc.collect()
    gc.freeze()
    Server(Path(sys.argv[1])).serve(int(sys.argv[2]))
