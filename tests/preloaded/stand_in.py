"""Processes of tests start with the libraries loaded: sitecustomize.py, on PYTHONPATH, has Python begin with `ask`.

A command of ours, a rank, a job of Slurm or torchrun, which would load torch and diffusers for seconds, asks the server
(server.py) to fork a process that has them, with its own arguments, environment, folder, streams and signals; what is
ours is imported there as ever. This process stands in for the other: it hands signals on, dies with it, and as it did.
Where there is no server, where VARIABLE is unset, and for all other programs, Python goes on as ever.
"""

from __future__ import annotations

import os
import signal
import sys

VARIABLE = "OTIL_EXP_PRELOADED"
"""Where the server listens."""

RANK = "from otil_exp.launch.rank import main"
"""What is in the command of a rank (otil_exp.launch.handover)."""

COMMANDS = ("otil_exp.", "torch.distributed.run", "submitit.core._submit")
"""Modules that are run so (python -m); otil_exp.slurm.batch loads nothing, and starts another Python."""

STARTED, START_S = "started", 60.0
"""Ending of a file beside that place, from when the server is started; seconds that it gets until it listens."""

HANDED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)

LIBRARIES = ("HF_HOME", "HF_HUB_", "DIFFUSERS_", "TRANSFORMERS_", "TORCH_LOGS", "MPL", "PYTHONHASHSEED", "LD_", "MKL_")
"""Beginnings of variables that libraries look at while they are loaded."""


def what_is_run(arguments: list[str]) -> tuple[str, str, list[str]] | None:
    """("m", module) or ("c", code), and the arguments, of a command line that is for the server."""
    rest = arguments[2:] if arguments[1:2] == ["-u"] else arguments[1:]
    if len(rest) < 2 or rest[0] not in ("-m", "-c"):
        return None
    word = rest[1]
    ours = RANK in word if rest[0] == "-c" else word.startswith(COMMANDS) and word != "otil_exp.slurm.batch"
    return (rest[0][1], word, rest[2:]) if ours else None


def surroundings() -> dict[str, str]:
    """What a process forked elsewhere cannot be given: libraries loaded otherwise, namespaces, a cgroup, limits."""
    found = {name: value for name, value in os.environ.items() if name.startswith(LIBRARIES)}
    found |= {name: os.readlink(f"/proc/self/ns/{name}") for name in ("net", "mnt", "pid", "user", "ipc", "uts")}
    with open("/proc/self/cgroup") as cgroup, open("/proc/self/limits") as limits:
        found["cgroup"] = cgroup.read()
        found["limits"] = "".join(line for line in limits if line.startswith(("Max file size", "Max address space")))
    return found | {"prefix": sys.prefix}


def stand_in(place: str, run: tuple[str, str, list[str]]) -> None:
    """Ask for a process and end as it does; returns where there is no server in the same surroundings."""
    import ctypes
    import errno
    import json
    import socket
    import time

    connection = socket.socket(socket.AF_UNIX)
    deadline = time.monotonic() + START_S
    while refused := connection.connect_ex(place):
        if refused != errno.ENOENT or time.monotonic() > deadline or not os.path.exists(f"{place}.{STARTED}"):
            return
        time.sleep(0.05)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    request = {
        "pid": os.getpid(),
        "run": run,
        "orig_argv": sys.orig_argv,
        "path": ([] if sys.flags.safe_path else [""] if run[0] == "c" else [os.getcwd()]) + sys.path,
        "executable": sys.executable,
        "surroundings": surroundings(),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "parent": os.getppid(),
        "blocked": [int(number) for number in blocked],
        "ignored": [int(number) for number in HANDED_ON if signal.getsignal(number) == signal.SIG_IGN],
    }
    data = json.dumps(request).encode()
    socket.send_fds(connection, [b"%12d" % len(data)], [0, 1, 2])
    connection.sendall(data)
    answers = connection.makefile("r")
    child = int(answers.readline() or 0)
    if not child:
        return
    if run[0] == "c":  # a rank has the kernel end it with its parent: this process, which has the parent, does so here
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)

    def hand_on(number: int, _: object) -> None:
        os.kill(child, number)

    for number in HANDED_ON:
        signal.signal(number, hand_on)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    status = int(answers.readline() or -signal.SIGKILL)
    if status < 0:
        if status != -signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def process_behind(pid: int) -> list[int]:
    """The process that `pid` stands in for, if it does."""
    try:
        with open(f"{os.environ[VARIABLE]}.{pid}") as file:
            return [int(file.read())]
    except (KeyError, FileNotFoundError):
        return []


def ask() -> None:
    """Stand in for another process, where this is one of those commands and there is a server."""
    if VARIABLE in os.environ and (found := what_is_run(sys.orig_argv)) is not None:
        stand_in(os.environ[VARIABLE], found)
