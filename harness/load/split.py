"""Cuts one workload into as many as there are workers, so that together they are the same run.

The schedule is made before the cut: every request keeps its absolute due time, whichever worker
sends it. Requests that wait for one another (triggers, turns of a conversation) stay together. In
a closed loop the slots are shared out, the first workers getting one more where it does not divide.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from workloads.workload import Workload, WorkloadRequest


def split(workload: Workload, workers: int) -> list[Workload]:
    """At most ``workers`` parts, none empty, each with its requests in the original order."""
    if workload.concurrency is not None:
        workers = min(workers, workload.concurrency)
    groups = _groups(workload)
    workers = max(1, min(workers, len(groups)))
    parts: list[list[WorkloadRequest]] = [[] for _ in range(workers)]
    for number, group in enumerate(groups):
        parts[number % workers].extend(group)
    place = {request.key: number for number, request in enumerate(workload.requests)}
    made = []
    for number, part in enumerate(parts):
        slots = workload.concurrency
        if slots is not None:
            slots = slots // workers + (number < slots % workers)
        ordered = tuple(sorted(part, key=lambda request: place[request.key]))
        made.append(replace(workload, requests=ordered, concurrency=slots))
    return made


def _groups(workload: Workload) -> list[list[WorkloadRequest]]:
    """Requests tied together by waiting, in order of the first of each group."""
    leader: dict[str, str] = {request.key: request.key for request in workload.requests}

    def find(key: str) -> str:
        while leader[key] != key:
            leader[key] = leader[leader[key]]
            key = leader[key]
        return key

    for request in workload.requests:
        for other in (request.after.key if request.after else None, request.after_end):
            if other is not None:
                leader[find(request.key)] = find(other)
    groups: dict[str, list[WorkloadRequest]] = defaultdict(list)
    for request in workload.requests:
        groups[find(request.key)].append(request)
    return list(groups.values())
