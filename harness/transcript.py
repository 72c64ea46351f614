"""The `Transcript`: what one run of a workload looked like from the client's side.

Times are seconds on the client's monotonic clock, counted from the start of the run. `t_due` is
when the schedule said, `t_sent` when the first byte of the request was written; an event's time is
that of the socket read that brought it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Ending(StrEnum):
    """How one request ended. Only ``COMPLETE`` is a success."""

    COMPLETE = "complete"
    CANCELLED = "cancelled"  # by this client, as the workload asked
    REFUSED = "refused"  # 4xx, as status or as the stream's first event: the server said no
    SERVER_ERROR = "server-error"  # 5xx or any other error event in the stream
    CONNECT_FAILED = "connect-failed"
    DISCONNECTED = "disconnected"  # the stream ended without its terminal event
    TIMEOUT = "timeout"
    PROTOCOL_ERROR = "protocol-error"  # not HTTP, not SSE, not JSON, not the API's shape


@dataclass(frozen=True, slots=True)
class Usage:
    """The server's own count of tokens."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None


@dataclass(slots=True)  # not frozen: millions are made, and freezing doubles the cost
class TokenChunk:
    """One token-bearing event for one choice. ``token_ids`` is None where the server tells none.

    ``tokens`` is how many tokens it carries, where ids, logprobs or a running usage tell; else
    None, never a guess.
    """

    t_s: float
    text: str = ""
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    top_logprobs: tuple[Mapping[str, float], ...] | None = None
    tokens: int | None = None


@dataclass(slots=True)
class ChoiceTranscript:
    """What arrived for one choice of one request."""

    chunks: list[TokenChunk] = field(default_factory=list)
    finish_reasons: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All deltas together."""
        return "".join(chunk.text for chunk in self.chunks)

    @property
    def token_ids(self) -> tuple[int, ...] | None:
        """All ids together, or None if any chunk came without."""
        ids: list[int] = []
        for chunk in self.chunks:
            if chunk.token_ids is None:
                return None
            ids.extend(chunk.token_ids)
        return tuple(ids)


@dataclass(slots=True)
class RequestTranscript:
    """What happened to one request of the workload, in the client's eyes.

    ``t_end_s`` is when the last byte of the answer came or the request was given up.
    ``t_connect_s`` is how long the connection took to open, None where an idle one was reused.
    ``retries`` counts sends after a reset on a reused idle connection. ``text_tokens`` is the
    client's own count of the whole text's tokens, where it has a tokenizer. The planned lengths are
    those that the server must report: of a token-id prompt, and of an answer that must not end
    early. ``closed_without_done``: a stream taken for whole, since it gave its finish reasons,
    though no ``[DONE]`` came, as is usual for that server. ``raw`` has the parsed JSON events in
    order, and the string ``[DONE]`` for a terminator; for a non-stream answer the one document.
    """

    key: str
    ending: Ending
    t_due_s: float
    t_sent_s: float | None = None
    t_end_s: float | None = None
    choices: dict[int, ChoiceTranscript] = field(default_factory=dict)
    usage: Usage | None = None
    status: int | None = None
    response_id: str | None = None
    error: str | None = None
    terminators: int = 0
    usages_seen: int = 0
    prompt_logprobs: list[Any] | None = None
    raw: list[Any] = field(default_factory=list)
    prompt_token_ids: tuple[int, ...] | None = None
    t_connect_s: float | None = None
    retries: int = 0
    text_tokens: int | None = None
    planned_prompt_tokens: int | None = None
    planned_output_tokens: int | None = None
    closed_without_done: bool = False

    @property
    def first(self) -> ChoiceTranscript:
        """Choice 0, empty if nothing arrived."""
        return self.choices.get(0) or ChoiceTranscript()

    @property
    def t_first_s(self) -> float | None:
        """When the first token-bearing chunk arrived."""
        times = [c.chunks[0].t_s for c in self.choices.values() if c.chunks]
        return min(times, default=None)

    @property
    def t_last_s(self) -> float | None:
        """When the last token-bearing chunk arrived."""
        times = [c.chunks[-1].t_s for c in self.choices.values() if c.chunks]
        return max(times, default=None)


@dataclass(slots=True)
class Transcript:
    """All requests of one run, by key, in order of submission.

    ``t_origin_s`` is the start of the run on the machine's monotonic clock.
    """

    requests: dict[str, RequestTranscript] = field(default_factory=dict)
    duration_s: float = 0.0
    t_origin_s: float = 0.0

    def __getitem__(self, key: str) -> RequestTranscript:
        return self.requests[key]
