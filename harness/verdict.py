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
    """One broken property, with the smallest workload that shows it.

    ``detail`` says what is and what should be. The example was tried again ``tried`` times in all
    and failed ``seen`` times. ``draws`` are the choices that made the example, enough to run the
    whole check body again; ``earlier`` are the workloads that it ran before ``workload``.
    """

    sentence: str
    request_key: str | None = None
    expected: Any = None
    actual: Any = None
    first_difference: int | None = None
    guess: str | None = None
    workload: Workload | None = None
    seen: int = 1
    tried: int = 1
    detail: str = ""
    draws: list[Any] = field(default_factory=list)
    earlier: list[Workload] = field(default_factory=list)

    def to_json(self, check_id: str) -> dict[str, Any]:
        """A workload document that also holds the failure, so that it can be run or replayed."""
        document = (self.workload or Workload(())).to_json()
        document["failure"] = {
            "check_id": check_id,
            "sentence": self.sentence,
            "detail": self.detail,
            "request_key": self.request_key,
            "expected": self.expected,
            "actual": self.actual,
            "first_difference": self.first_difference,
            "guess": self.guess,
            "seen": self.seen,
            "tried": self.tried,
            "draws": self.draws,
            "earlier": [workload.to_json() for workload in self.earlier],
        }
        return document


@dataclass(slots=True)
class CheckResult:
    """One check's verdict. ``evidence`` counts what shows that the feature was exercised.

    ``first_failure_requests`` is how many requests the check had sent when it first failed.
    """

    check_id: str
    verdict: Verdict
    sentence: str
    reason: str = ""
    evidence: dict[str, float] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    requests: int = 0
    duration_s: float = 0.0
    first_failure_requests: int | None = None
