"""What a client asks of the engine, and what the engine tells it, token by token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class FinishReason(StrEnum):
    """Why a choice ended. The values are those of the OpenAI API, plus ``cancelled``."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token of one request is chosen; never shared between requests.

    ``temperature == 0`` is greedy whatever the other parameters say. ``seed`` keys a counter-based
    generator together with the choice index and the position, so a draw depends on nothing else.
    """

    max_tokens: int = 16
    min_tokens: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and its parameters. ``priority``: lower is served first; ties go by arrival."""

    request_id: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams = SamplingParams()
    cache_salt: str | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """The natural log-probability of one token and of the ``k`` most likely ones, best first."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One step's news about one choice of one request.

    ``token_id`` is None when the choice ends without a new token (cancelled, error).
    ``finish_reason`` is set on the last event of the choice. ``cached_tokens`` counts the prompt
    tokens whose keys and values came from the prefix cache. ``prompt_logprobs``, asked for, comes
    with the first event: one entry a prompt token, None for the first.
    """

    request_id: str
    choice: int
    token_id: int | None
    logprobs: TokenLogprobs | None = None
    finish_reason: FinishReason | None = None
    cached_tokens: int = 0
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """The whole answer for one choice: what ``solo`` returns and what engine events add up to."""

    request_id: str
    choice: int
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]
    finish_reason: FinishReason
    cached_tokens: int = 0
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None


class RequestRefused(ValueError):
    """The request can never be served; ``field`` names the part of it that is wrong."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field
