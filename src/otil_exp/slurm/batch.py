"""python -m otil_exp.slurm.batch ARGUMENTS: Python with these arguments, for which Slurm's signals wait.

A job may be preempted as soon as it runs, seconds before it has handlers: what comes meanwhile must neither end it nor
be lost. Signals that a process blocks stay pending over exec, until `Allocation` has its handlers and takes them.
"""

import os
import signal
import sys

TOLD = (signal.SIGUSR2, signal.SIGTERM)
"""By which Slurm tells a job of its end."""

if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, TOLD)
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
