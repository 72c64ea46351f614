"""One run of the suite against one server: the target, the oracle and the limits, in one place."""

from __future__ import annotations

from dataclasses import dataclass

from harness.checks.asker import Asker
from harness.checks.budget import BUDGETS, Budget
from harness.checks.capabilities import Capabilities
from harness.oracles.oracle import Oracle
from harness.targets.target import Target


@dataclass(slots=True)
class Session:
    """What all checks of a run share."""

    asker: Asker
    oracle: Oracle
    capabilities: Capabilities
    budget: Budget = BUDGETS["quick"]
    seed: int = 0
    nonces: int = 0

    def nonce(self) -> str:
        """A word that no earlier example of this run used, for prompts that must be cold."""
        self.nonces += 1
        return f"{self.seed}-{self.nonces}"

    @property
    def target(self) -> Target:
        """The server."""
        return self.asker.target
