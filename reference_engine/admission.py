"""What a request must satisfy to be served at all, and when one is done."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from typing import Protocol

from reference_engine.request import FinishReason, Request, RequestRefused, SamplingParams


class ModelLimits(Protocol):
    """The facts about a model that requests are checked against."""

    @property
    def vocab_size(self) -> int:
        """Token ids are below it."""

    @property
    def max_context_tokens(self) -> int:
        """Positions the model knows."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end a text."""


def check_request(limits: ModelLimits, request: Request) -> None:
    """Raise RequestRefused, naming the field, if the model can never serve the request."""
    prompt, params = request.prompt_ids, request.params
    if not prompt:
        raise RequestRefused("the prompt is empty", field="prompt_ids")
    _check_token_ids("prompt_ids", prompt, limits.vocab_size)
    _check_token_ids("stop_token_ids", params.stop_token_ids, limits.vocab_size)
    _check_token_ids("logit_bias", tuple(params.logit_bias), limits.vocab_size)
    _check_ranges(params)
    total = len(prompt) + params.max_tokens
    if total > limits.max_context_tokens:
        raise RequestRefused(
            f"{len(prompt)} prompt tokens and max_tokens {params.max_tokens} make {total}, but "
            f"the model's context holds {limits.max_context_tokens}",
            field="prompt_ids" if len(prompt) >= limits.max_context_tokens else "max_tokens",
        )
    for field in ("logprobs", "prompt_logprobs"):
        count = getattr(params, field)
        if count is not None and not 0 <= count <= limits.vocab_size:
            raise RequestRefused(f"{field} must lie in 0..{limits.vocab_size}", field=field)


def _check_token_ids(field: str, ids: tuple[int, ...], vocab_size: int) -> None:
    for token in ids:
        if not 0 <= token < vocab_size:
            raise RequestRefused(
                f"token id {token} is outside the vocabulary 0..{vocab_size - 1}", field=field
            )


_RANGES: Mapping[str, tuple[float, float]] = {
    "max_tokens": (1, math.inf),
    "min_tokens": (0, math.inf),
    "temperature": (0.0, math.inf),
    "top_k": (0, math.inf),
    "min_p": (0.0, 1.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "n": (1, 128),
    "seed": (-(2**63), 2**63 - 1),
}


def _check_ranges(params: SamplingParams) -> None:
    for field, (low, high) in _RANGES.items():
        value = getattr(params, field)
        if value is not None and not (low <= value <= high and math.isfinite(value)):
            raise RequestRefused(f"{field} is {value}, must be {_interval(low, high)}", field=field)
    if not 0.0 < params.top_p <= 1.0:
        raise RequestRefused(f"top_p is {params.top_p}, must lie in (0, 1]", field="top_p")
    if not (params.repetition_penalty > 0 and math.isfinite(params.repetition_penalty)):
        raise RequestRefused("repetition_penalty must be above 0", field="repetition_penalty")
    if params.min_tokens > params.max_tokens:
        raise RequestRefused("min_tokens is larger than max_tokens", field="min_tokens")
    if not all(math.isfinite(bias) for bias in params.logit_bias.values()):
        raise RequestRefused("logit_bias values must be finite numbers", field="logit_bias")


def _interval(low: float, high: float) -> str:
    return f"at least {low}" if high == math.inf else f"between {low} and {high}"


def end_ids(limits: ModelLimits, request: Request) -> frozenset[int]:
    """The tokens that end a choice of this request."""
    eos = frozenset() if request.params.ignore_eos else limits.eos_ids
    return eos | frozenset(request.params.stop_token_ids)


def finish_reason(
    token: int, output_tokens: int, request: Request, ends: frozenset[int]
) -> FinishReason | None:
    """Why the choice is over after ``token``, its ``output_tokens``-th; None if it goes on.

    A token that ends the text counts even where ``min_tokens`` is not reached: the sampler never
    chooses one before.
    """
    if token in ends:
        return FinishReason.STOP
    return FinishReason.LENGTH if output_tokens >= request.params.max_tokens else None


def resolved_seed(params: SamplingParams) -> int:
    """The request's seed, or a fresh one: without a seed nobody asked for a repeatable draw."""
    return secrets.randbits(63) if params.seed is None else params.seed
