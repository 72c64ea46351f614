"""What a transcript shows to have happened: without it, a passed check proves nothing."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from harness.transcript import RequestTranscript, Transcript


def streaming_interval_s(request: RequestTranscript) -> tuple[float, float] | None:
    """First and last token-bearing chunk, for an answer that came in at least two pieces."""
    first, last = request.t_first_s, request.t_last_s
    if first is None or last is None or last <= first:
        return None
    return first, last


def interleaved_pairs(transcript: Transcript) -> int:
    """Pairs of requests of which each received a token while the other was still receiving."""
    intervals = _intervals(transcript.requests.values())
    return sum(a[0] < b[1] and b[0] < a[1] for a, b in combinations(intervals, 2))


def peak_overlap(transcript: Transcript) -> int:
    """The most requests that were receiving tokens at one moment."""
    edges = []
    for first, last in _intervals(transcript.requests.values()):
        edges += [(first, 1), (last, -1)]
    live = peak = 0
    for _, change in sorted(edges):
        live += change
        peak = max(peak, live)
    return peak


def cached_tokens(transcript: Transcript) -> int:
    """Prompt tokens that the server says it took from its prefix cache."""
    usages = (r.usage for r in transcript.requests.values())
    return sum(u.cached_tokens or 0 for u in usages if u is not None)


def _intervals(requests: Iterable[RequestTranscript]) -> list[tuple[float, float]]:
    return [i for r in requests if (i := streaming_interval_s(r)) is not None]
