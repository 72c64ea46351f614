"""How much a run of the suite may spend: examples, sizes and seconds, as three named budgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one run of the suite.

    ``examples`` is the number of workloads drawn for a check of cost 1, ``crowd`` the most
    requests at once, ``prompt_tokens`` and ``output_tokens`` the longest drawn. A check stops
    drawing after ``check_s`` seconds; the search for a smaller failing workload ends after
    ``shrink_runs`` runs or ``shrink_s`` seconds. A failure is tried again ``confirmations`` times.
    """

    name: str
    examples: int
    crowd: int
    prompt_tokens: int
    output_tokens: int
    check_s: float
    shrink_runs: int
    shrink_s: float
    confirmations: int = 3


BUDGETS: Final[Mapping[str, Budget]] = {
    "quick": Budget("quick", 2, 8, 300, 24, 10.0, 40, 15.0),
    "standard": Budget("standard", 10, 16, 600, 32, 45.0, 120, 60.0),
    "exhaustive": Budget("exhaustive", 200, 48, 1500, 64, 3600.0, 1000, 600.0),
}
