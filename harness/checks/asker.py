"""Asks a target in the dialect that it was found to speak."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.checks.dialect import Dialect
from harness.targets.target import Target
from harness.transcript import RequestTranscript, Transcript
from workloads.workload import Workload, WorkloadRequest


@dataclass(slots=True)
class Asker:
    """A target and its dialect. ``requests`` counts all that was sent."""

    target: Target
    dialect: Dialect
    requests: int = 0

    def prepared(self, workload: Workload) -> Workload:
        """The workload with the dialect's parameters added where a request has none of its own."""
        params = self.dialect.params
        if not params:
            return workload
        requests = [replace(r, params={**params, **r.params}) for r in workload.requests]
        return replace(workload, requests=tuple(requests))

    async def run(self, workload: Workload) -> Transcript:
        """Run a prepared workload."""
        self.requests += len(workload.requests)
        return self.dialect.read(await self.target.run(workload))

    async def one(self, request: WorkloadRequest, origin: str = "") -> RequestTranscript:
        """The answer to one request, alone."""
        workload = self.prepared(Workload((request,), origin=origin))
        return (await self.run(workload))[request.key]
