"""Why jobs wait: which of Slurm's reasons go away by themselves, and what to do about the others."""

from __future__ import annotations

import re

_NEVER = re.compile(
    r"BadConstraints|DependencyNeverSatisfied|Invalid(Account|QOS)|Partition(Config|NodeLimit|TimeLimit)"
    r"|(QOS|Assoc)M(ax|in)\w*PerJob\w*"
)
"""squeue(1), JOB REASON CODES, for which a job waits until somebody changes it or the cluster."""

_ADVICE = (
    (r"JobHeldUser", "held: `scontrol release {job}` lets it start"),
    (r"JobHeldAdmin|JobHoldMaxRequeue", "held by the cluster or who runs it, who alone can release it"),
    (r"launch failed requeued held", "a node could not start it: ask who runs the cluster, or scancel {job}"),
    (r"QOS\w*", "a limit of its QOS: it starts when other jobs have ended; `sacctmgr show qos` has the limits"),
    (r"Assoc\w*|MaxJobs\w*|MaxSubmit\w*", "a limit of your account: it starts when other jobs have ended"),
    (r"Licenses|Reservation|ReqNodeNotAvail.*|Node\w*|Partition(Down|Inactive)", "`sinfo` says which nodes are there"),
    (r"BeginTime", "requeued, or to begin later"),
)
"""Reasons that a user wants to know of, and what is to be said; the others (Priority, Resources ...) pass."""


def is_final(reason: str) -> bool:
    """Whether a job with this reason never starts as it was asked for."""
    return _NEVER.fullmatch(reason) is not None


def advice(reason: str, job: str) -> str | None:
    """What to say of a job that waits for this reason; None where waiting is all there is to do."""
    for pattern, words in _ADVICE:
        if re.fullmatch(pattern, reason):
            return words.format(job=job)
    return None
