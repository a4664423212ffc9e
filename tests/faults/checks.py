"""What survivors have to say. Every function gives a list of complaints, empty where all is well."""

import re

RESTART = 75
KILL_LIMIT = 2.0  # seconds from the injury to the named error
SILENCE_LIMIT = 2.0  # the same, beyond the heartbeat limit


def honest(job):
    """Whatever happens: no wrong sum, no memory touched late, nothing that hangs."""
    said = []
    for event in job.events:
        if event["event"] in ("wrong", "late_write", "hang"):
            said.append(f"rank {event['rank']}: {event}")
    return said


def named(job, culprit, survivors, since, limit, group=True):
    """Each survivor's calls failed with this culprit within `limit` seconds of `since`.

    group: the whole group has failed, for good; else only calls with the culprit have.
    Gives complaints and the longest time that it took.
    """
    said, worst, sentences = [], 0.0, set()
    for rank in survivors:
        errors = job.of(rank, "error", "create_failed")
        if len(errors) != 1:
            said.append(f"rank {rank} reported {len(errors)} errors instead of one")
            continue
        error = errors[0]
        # `at` is when every call of the step had ended, and further ones been refused.
        took = error["at"] - since
        worst = max(worst, took)
        sentences.add(error["message"])
        if error["culprit"] != culprit or f"rank {culprit}" not in error["message"]:
            said.append(f"rank {rank} blames rank {error['culprit']}: {error['message']}")
        if error["code"] != "PeerLost":
            said.append(f"rank {rank} says {error['code']}: {error['message']}")
        if took > limit:
            said.append(f"rank {rank} took {took:.2f} s, more than {limit:.2f}")
        if group and error["event"] == "error":
            others = {error["group"], *error["messages"], *error["again"]} - {error["message"]}
            if others or len(error["again"]) != 3:
                said.append(f"rank {rank} says different things: {error}")
    # Each rank notices the end of the coordinator by itself; all else it tells.
    if culprit != 0 and len(sentences) > 1 and group:
        said.append(f"the survivors say different things: {sorted(sentences)}")
    return said, worst


def restartable(job, ranks):
    """Processes that tell their starter that it helps to start again."""
    if job.trial.backend == "mpi":
        return [] if job.code(0) != 0 else ["mpirun's exit code is 0"]
    return [f"rank {rank} ended with {job.code(rank)}, not {RESTART}"
            for rank in ranks if job.code(rank) != RESTART]


def missing(job, culprit, survivors, since, lost_limit, join_limit):
    """As named(), where some may not have got as far as a group: those name who did not come."""
    said, worst = [], 0.0
    pattern = re.compile(rf"\b(rank|missing)\b[^;]*\b{culprit}\b")
    for rank in survivors:
        errors = job.of(rank, "error", "create_failed")
        if len(errors) != 1:
            said.append(f"rank {rank} reported {len(errors)} errors instead of one")
            continue
        error = errors[0]
        took = error["at"] - since
        worst = max(worst, took)
        limit = lost_limit if error["event"] == "error" else join_limit
        if not pattern.search(error["message"]):
            said.append(f"rank {rank} does not name rank {culprit}: {error['message']}")
        if took > limit:
            said.append(f"rank {rank} took {took:.2f} s, more than {limit:.2f}: {error['message']}")
    return said, worst


def well(job, ranks):
    """Ended as if nothing had been."""
    said = []
    for rank in ranks:
        for error in job.of(rank, "error", "create_failed"):
            said.append(f"rank {rank}: {error}")
        if not job.of(rank, "closed"):
            said.append(f"rank {rank} did not come to its end")
        if job.code(rank) != 0:
            said.append(f"rank {rank} ended with {job.code(rank)}")
    return said
