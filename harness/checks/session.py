"""One run of the suite against one server: the target, the oracle and the limits, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from harness.checks.budget import BUDGETS, Budget
from harness.checks.capabilities import Capabilities
from harness.oracles.oracle import Oracle
from harness.targets.target import Target
from workloads.workload import Workload


@dataclass(slots=True)
class Session:
    """What all checks of a run share. ``params`` are added to every request that lacks them."""

    target: Target
    oracle: Oracle
    capabilities: Capabilities
    budget: Budget = BUDGETS["quick"]
    seed: int = 0
    params: Mapping[str, Any] = field(default_factory=dict)

    def prepared(self, workload: Workload) -> Workload:
        """The workload with this run's own parameters added."""
        if not self.params:
            return workload
        requests = [replace(r, params={**self.params, **r.params}) for r in workload.requests]
        return replace(workload, requests=tuple(requests))
