"""From transcripts to samples: one value a request, or one a gap."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from harness.metrics.ledger import TokenLedger
from harness.transcript import Ending, RequestTranscript

_PER_REQUEST: Final = (
    "ttft.response",
    "ttft.service",
    "tpot",
    "e2e.response",
    "e2e.service",
    "connect",
    "send_lag",
)


def samples(requests: Iterable[RequestTranscript]) -> dict[str, list[float]]:
    """The samples of each sampled definition, in seconds, from the complete requests.

    Failures are counted elsewhere and kept; a latency of a request that did not end as it should
    would mean nothing.
    """
    found: dict[str, list[float]] = {name: [] for name in (*_PER_REQUEST, "chunk_gap", "itl")}
    for request in requests:
        if request.ending is not Ending.COMPLETE:
            continue
        for name in _PER_REQUEST:
            value = one_value(name, request)
            if value is not None:
                found[name].append(value)
        _add_gaps(request, found["chunk_gap"], found["itl"])
    return found


def one_value(metric_id: str, request: RequestTranscript) -> float | None:
    """The value of a per-request metric in seconds, None where it is undefined."""
    first, last = request.t_first_s, request.t_last_s
    due, sent = request.t_due_s, request.t_sent_s
    match metric_id:
        case "ttft.response":
            return None if first is None else first - due
        case "ttft.service":
            return None if first is None or sent is None else first - sent
        case "e2e.response":
            return None if last is None else last - due
        case "e2e.service":
            return None if last is None or sent is None else last - sent
        case "connect":
            return request.t_connect_s
        case "send_lag":
            return None if sent is None else sent - due
        case "tpot":
            return _tpot(request, first, last)
    raise ValueError(f"{metric_id} has no single value a request")


def _tpot(request: RequestTranscript, first: float | None, last: float | None) -> float | None:
    tokens = TokenLedger.of(request).output_tokens
    if first is None or last is None or tokens is None or len(request.choices) != 1:
        return None
    # One chunk (a non-stream answer) has no time between tokens, however many it carries.
    if tokens < 2 or len(request.first.chunks) < 2:
        return None
    return (last - first) / (tokens - 1)


def _add_gaps(request: RequestTranscript, gaps: list[float], itls: list[float]) -> None:
    for choice in request.choices.values():
        for earlier, later in pairwise(choice.chunks):
            gap = later.t_s - earlier.t_s
            gaps.append(gap)
            if later.tokens:
                itls.append(gap / later.tokens)
