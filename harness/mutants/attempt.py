"""What one fault, or the healthy server, made of the suite: attempts, kills, requests."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from harness.mutants.settings import chapters_of
from harness.verdict import CheckResult, Verdict


@dataclass(slots=True)
class Attempt:
    """The suite against one fault in one setting. ``error`` is why it could not be run.

    ``executions`` counts how often the fault had run when the last check ended: a check that
    failed before the fault ever ran has accused a healthy server.
    """

    setting: str
    budget: str = "quick"
    seed: int = 0
    results: list[CheckResult] = field(default_factory=list)
    executions: int | None = None
    requests: int = 0
    duration_s: float = 0.0
    error: str | None = None

    @property
    def failures(self) -> list[CheckResult]:
        """The checks that failed."""
        return [r for r in self.results if r.verdict is Verdict.FAIL]

    @property
    def killers(self) -> list[CheckResult]:
        """The checks that failed on a fault that had run."""
        return self.failures if self.executions else []

    def to_json(self) -> dict[str, Any]:
        """Every verdict by check; what the failures say."""
        return {
            "setting": self.setting,
            "budget": self.budget,
            "seed": self.seed,
            "results": {r.check_id: r.verdict.value for r in self.results},
            "details": {r.check_id: r.reason for r in self.failures},
            "executions": self.executions,
            "requests": self.requests,
            "duration_s": round(self.duration_s, 1),
            "error": self.error,
        }

    def healthy_json(self) -> dict[str, Any]:
        """A run on the healthy server: counts, and the failures in full."""
        workloads = sum(int(r.evidence.get("examples", 0)) for r in self.results)
        wrong = [r for r in self.results if r.verdict in (Verdict.FAIL, Verdict.ERROR)]
        return {
            "setting": self.setting,
            "budget": self.budget,
            "seed": self.seed,
            "verdicts": dict(sorted(Counter(r.verdict.value for r in self.results).items())),
            "failures": {r.check_id: r.reason for r in wrong},
            "workloads": workloads,
            "requests": self.requests,
            "duration_s": round(self.duration_s, 1),
            "error": self.error,
        }


@dataclass(slots=True)
class MutantRow:
    """One fault and all attempts at it."""

    name: str
    title: str
    group: str
    imitates: tuple[str, ...]
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def killed(self) -> bool:
        """Whether a check failed and the fault had run. A server not judged is no kill."""
        return any(a.killers for a in self.attempts)

    @property
    def errors(self) -> list[str]:
        """Why it could not be judged, in the settings in which it could not."""
        return [a.error for a in self.attempts if a.error]

    @property
    def killed_by_its_chapter(self) -> bool:
        """Whether a check of the chapters that answer for its group failed."""
        own = {chapter.value for chapter in chapters_of(self.group)}
        return any(k.check_id.split("-")[0] in own for a in self.attempts for k in a.killers)

    @property
    def requests_to_detection(self) -> int | None:
        """Requests that the suite had sent, over all settings, when a check first failed."""
        sent = 0
        for attempt in self.attempts:
            for result in attempt.results:
                if result.verdict is Verdict.FAIL and attempt.executions:
                    return sent + (result.first_failure_requests or result.requests)
                sent += result.requests
        return None

    def to_json(self) -> dict[str, Any]:
        """The row of the kill matrix."""
        return {
            "fault": self.name,
            "title": self.title,
            "group": self.group,
            "imitates": list(self.imitates),
            "killed": self.killed,
            "killed_by_own_chapter": self.killed_by_its_chapter,
            "executed": any(a.executions for a in self.attempts),
            "errors": self.errors,
            "requests_to_detection": self.requests_to_detection,
            "attempts": [a.to_json() for a in self.attempts],
        }
