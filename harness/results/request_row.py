"""One request of a transcript as a row of ``requests.jsonl``: times and counts, no content."""

from __future__ import annotations

from typing import TypedDict

from harness.transcript import RequestTranscript


class RequestRow(TypedDict):
    """Seconds are since the run of the workload began; ``chunk_tokens`` is null where untold."""

    key: str
    response_id: str | None
    ending: str
    status: int | None
    error: str | None
    t_due_s: float
    t_sent_s: float | None
    t_first_s: float | None
    t_last_s: float | None
    t_end_s: float | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    chunk_times_s: list[float]
    chunk_tokens: list[int | None]


def request_row(request: RequestTranscript) -> RequestRow:
    """The row of one request, chunks of all its choices in order of arrival."""
    chunks = sorted(
        (chunk for choice in request.choices.values() for chunk in choice.chunks),
        key=lambda chunk: chunk.t_s,
    )
    usage = request.usage
    return {
        "key": request.key,
        "response_id": request.response_id,
        "ending": request.ending.value,
        "status": request.status,
        "error": request.error,
        "t_due_s": request.t_due_s,
        "t_sent_s": request.t_sent_s,
        "t_first_s": request.t_first_s,
        "t_last_s": request.t_last_s,
        "t_end_s": request.t_end_s,
        "prompt_tokens": None if usage is None else usage.prompt_tokens,
        "completion_tokens": None if usage is None else usage.completion_tokens,
        "cached_tokens": None if usage is None else usage.cached_tokens,
        "chunk_times_s": [chunk.t_s for chunk in chunks],
        "chunk_tokens": [None if c.token_ids is None else len(c.token_ids) for c in chunks],
    }
