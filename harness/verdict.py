"""What a check concludes, and the evidence that it had something to conclude from."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from workloads.workload import Workload


class Verdict(StrEnum):
    """The possible conclusions, as `conformance` defines them."""

    PASS = "pass"
    FAIL = "fail"
    TIE_FLIPS = "tie-flips"
    UNSUPPORTED = "unsupported"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"


@dataclass(slots=True)
class Failure:
    """One broken property, with the smallest workload that shows it."""

    sentence: str
    request_key: str | None = None
    expected: Any = None
    actual: Any = None
    first_difference: int | None = None
    guess: str | None = None
    workload: Workload | None = None
    seen: int = 1
    tried: int = 1


@dataclass(slots=True)
class CheckResult:
    """One check's verdict. ``evidence`` counts what shows that the feature was exercised."""

    check_id: str
    verdict: Verdict
    sentence: str
    reason: str = ""
    evidence: dict[str, float] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    requests: int = 0
    duration_s: float = 0.0
