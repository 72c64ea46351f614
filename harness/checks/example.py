"""The parts of one example of a check: what was run, what was spent, and requests in new shapes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from harness.transcript import RequestTranscript, Transcript
from workloads.workload import AfterTokens, Workload, WorkloadRequest


class NotApplicable(BaseException):
    """The check cannot say anything about this server, for the reason given.

    Not an Exception, so that it passes through Hypothesis, which would take it for a failure.
    """


@dataclass(slots=True)
class Tally:
    """What one check has spent and seen so far, over all its examples.

    ``trials``: every token judged, by what came before it, and whether it flipped at a near-tie.
    """

    requests: int = 0
    tie_flips: int = 0
    judged: int = 0
    unjudged: int = 0
    trials: dict[int, bool] = field(default_factory=dict)
    evidence: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Run:
    """A workload that was run, and what came back."""

    workload: Workload
    transcript: Transcript

    def __getitem__(self, key: str) -> RequestTranscript:
        return self.transcript[key]

    @property
    def answers(self) -> list[RequestTranscript]:
        """What came back for each request, in order of submission."""
        return list(self.transcript.requests.values())


def at(request: WorkloadRequest, due_s: float) -> WorkloadRequest:
    """The request, sent ``due_s`` seconds after the run begins."""
    return replace(request, due_s=due_s)


def after(request: WorkloadRequest, key: str, tokens: int = 1) -> WorkloadRequest:
    """The request, sent once ``tokens`` chunks of request ``key`` have arrived."""
    return replace(request, after=AfterTokens(key, tokens))


def hanging_up(request: WorkloadRequest, *, after_tokens: int) -> WorkloadRequest:
    """The request, whose client closes the connection after so many chunks."""
    return replace(request, cancel_after_tokens=after_tokens)


def renamed(request: WorkloadRequest, key: str) -> WorkloadRequest:
    """The same request under another key."""
    return replace(request, key=key)
