"""The steady window of a run, by one rule, and what flowed through it.

The window opens when the first request completes and closes when the last request is sent: before
it the server fills up, after it the server drains. Its latencies are those of requests sent within
it. A run too short to have such a window (every request sent before the first completed) has none,
and its steady numbers are null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.metrics.ledger import TokenLedger
from harness.transcript import Ending, RequestTranscript


@dataclass(frozen=True, slots=True)
class Window:
    """A span of the run, in seconds from its start; ``name`` is ``steady`` or ``whole``."""

    name: str
    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """Its length."""
        return self.end_s - self.start_s

    def sent_within(self, requests: Sequence[RequestTranscript]) -> list[RequestTranscript]:
        """The requests that were sent inside it."""
        return [
            r
            for r in requests
            if r.t_sent_s is not None and self.start_s <= r.t_sent_s <= self.end_s
        ]


def steady_window(requests: Sequence[RequestTranscript]) -> Window | None:
    """The steady window, or None where the run has none."""
    ends = [r.t_end_s for r in requests if r.ending is Ending.COMPLETE and r.t_end_s is not None]
    sends = [r.t_sent_s for r in requests if r.t_sent_s is not None]
    if not ends or not sends or max(sends) <= min(ends):
        return None
    return Window("steady", min(ends), max(sends))


def whole_window(requests: Sequence[RequestTranscript]) -> Window | None:
    """From the first request sent to the last end, or None if nothing was sent."""
    sends = [r.t_sent_s for r in requests if r.t_sent_s is not None]
    ends = [r.t_end_s for r in requests if r.t_end_s is not None]
    if not sends or not ends or max(ends) <= min(sends):
        return None
    return Window("whole", min(sends), max(ends))


@dataclass(frozen=True, slots=True)
class Flow:
    """Tokens and completions inside a window; None where the server's counts are missing."""

    output_tokens: float | None
    total_tokens: float | None
    completed: int


def flow(requests: Sequence[RequestTranscript], window: Window) -> Flow:
    """What flowed through the window.

    An output token counts where its chunk arrived: by the chunk's own count where every chunk has
    one that adds up to the usage, else the request's tokens are spread evenly over its chunks. A
    prompt counts where its first token arrived. Tokens of failed requests count too: the server
    computed them and the user got them.
    """
    output: float | None = 0.0
    total: float | None = 0.0
    completed = 0
    for request in requests:
        if request.ending is Ending.COMPLETE and request.t_end_s is not None:
            completed += window.start_s <= request.t_end_s <= window.end_s
        if request.t_first_s is None:
            continue
        inside = _output_inside(request, window)
        output = None if output is None or inside is None else output + inside
        prompt = _prompt_inside(request, window)
        if total is not None:
            total = None if inside is None or prompt is None else total + inside + prompt
    return Flow(output, total, completed)


def _output_inside(request: RequestTranscript, window: Window) -> float | None:
    chunks = [c for choice in request.choices.values() for c in choice.chunks]
    ledger = TokenLedger.of(request)
    tokens = ledger.output_tokens
    if tokens is None:
        return None
    arrived = [c for c in chunks if window.start_s <= c.t_s <= window.end_s]
    if ledger.ids == tokens:
        return float(sum(c.tokens or 0 for c in arrived))
    return tokens * len(arrived) / len(chunks)


def _prompt_inside(request: RequestTranscript, window: Window) -> float | None:
    if request.usage is None:
        return None
    first = request.t_first_s
    inside = first is not None and window.start_s <= first <= window.end_s
    return float(request.usage.prompt_tokens) if inside else 0.0
