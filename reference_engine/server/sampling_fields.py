"""The request fields that completions and chat share, and what they mean to the engine.

Names and ranges are those of the OpenAI API; fields that it lacks (``top_k``, ``min_tokens``,
``ignore_eos``, ``return_token_ids``, ``cache_salt``, ...) are spelt as vLLM spells them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from reference_engine.request import SamplingParams
from reference_engine.server.errors import ApiError
from reference_engine.server.fields import (
    Boolean,
    Field,
    Integer,
    ListOf,
    Nested,
    Number,
    Only,
    Text,
    TokenBias,
)
from reference_engine.server.limits import Limits

MAX_TOKENS: Final = 2**31 - 1
MAX_TOKEN_ID: Final = 2**31 - 1
MAX_STOPS: Final = 4
MAX_STOP_CHARS: Final = 1024
MAX_STOP_TOKEN_IDS: Final = 64
MAX_BIASES: Final = 1024

STREAM_OPTIONS: Final = (
    Field("include_usage", Boolean(), False, about="Send a last chunk with the token counts."),
    Field("continuous_usage_stats", Boolean(), False, about="Send the counts with every chunk."),
    Field("include_obfuscation", Boolean(), False, about="Accepted; there is none to include."),
)


def shared_fields(limits: Limits) -> tuple[Field, ...]:
    """The rows of the table that both generation endpoints take."""
    return (*_openai_fields(limits), *_engine_fields(limits))


def _openai_fields(limits: Limits) -> tuple[Field, ...]:
    return (
        Field("model", Text(512), about="The served model's name, as /v1/models lists it."),
        Field("n", Integer(1, limits.max_choices), 1, about="Choices for each prompt."),
        Field("stream", Boolean(), False, about="Answer with server-sent events."),
        Field("stream_options", Nested(STREAM_OPTIONS), about="Only with stream."),
        Field("temperature", Number(0, 2), 1.0, about="0 is greedy."),
        Field("top_p", Number(0, 1, above=True), 1.0),
        Field("presence_penalty", Number(-2, 2), 0.0),
        Field("frequency_penalty", Number(-2, 2), 0.0),
        Field("logit_bias", TokenBias(MAX_BIASES), about="Token id to bias."),
        Field("seed", Integer(-(2**63), 2**63 - 1), about="Makes sampling repeatable."),
        Field(
            "stop",
            ListOf(Text(MAX_STOP_CHARS, min_chars=1), 0, MAX_STOPS, or_single=True),
            (),
            about="Strings that end the text; they are not part of it.",
        ),
        Field("user", Text(512), about="Accepted and ignored."),
    )


def _engine_fields(limits: Limits) -> tuple[Field, ...]:
    return (
        Field("min_tokens", Integer(0, MAX_TOKENS), 0, about="No ending before so many tokens."),
        Field("top_k", Integer(-1, MAX_TOKEN_ID), 0, about="0 and -1 mean no limit."),
        Field("min_p", Number(0, 1), 0.0),
        Field("repetition_penalty", Number(0, 10, above=True), 1.0),
        Field("ignore_eos", Boolean(), False, about="Do not end at the end-of-sequence token."),
        Field(
            "stop_token_ids",
            ListOf(Integer(0, MAX_TOKEN_ID), 0, MAX_STOP_TOKEN_IDS),
            (),
            about="Tokens that end the answer; counted, not shown.",
        ),
        Field("include_stop_str_in_output", Boolean(), False),
        Field("skip_special_tokens", Boolean(), True),
        Field("add_special_tokens", Boolean(), True, about="For text prompts: add BOS."),
        Field("spaces_between_special_tokens", Only((True, False)), True, about="No effect."),
        Field(
            "prompt_logprobs",
            Integer(0, limits.max_logprobs),
            about="Log-probabilities of the prompt's tokens and so many alternatives.",
        ),
        Field("return_token_ids", Boolean(), False, about="Tell prompt and output token ids."),
        Field(
            "return_tokens_as_token_ids",
            Boolean(),
            False,
            about="In logprobs, write tokens as token_id:N.",
        ),
        Field("cache_salt", Text(256, min_chars=1), about="Share cached prefixes only under it."),
        Field("priority", Integer(-(2**31), 2**31 - 1), 0, about="Lower is served first."),
        Field("request_id", Text(128, min_chars=1), about="Part of the answer's id."),
    )


def check_together(values: Mapping[str, Any]) -> None:
    """Rules between fields that no table row can state. Raises ApiError."""
    if values["stream_options"] is not None and not values["stream"]:
        raise ApiError(
            "stream_options is only for stream=true", param="stream_options", code="invalid_value"
        )


def sampling_params(
    values: Mapping[str, Any], *, max_tokens: int, logprobs: int | None, vocab_size: int
) -> SamplingParams:
    """The engine's parameters. Raises ApiError for ids outside the vocabulary or min > max."""
    check_vocabulary(values["logit_bias"] or (), vocab_size, "logit_bias")
    check_vocabulary(values["stop_token_ids"], vocab_size, "stop_token_ids")
    if values["min_tokens"] > max_tokens:
        raise ApiError(
            f"min_tokens must be at most max_tokens, {max_tokens}, not {values['min_tokens']}",
            param="min_tokens",
            code="invalid_value",
        )
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=values["min_tokens"],
        temperature=values["temperature"],
        top_p=values["top_p"],
        top_k=max(0, values["top_k"]),
        min_p=values["min_p"],
        repetition_penalty=values["repetition_penalty"],
        presence_penalty=values["presence_penalty"],
        frequency_penalty=values["frequency_penalty"],
        logit_bias=values["logit_bias"] or {},
        stop_token_ids=values["stop_token_ids"],
        ignore_eos=values["ignore_eos"],
        seed=values["seed"],
        n=values["n"],
        logprobs=logprobs,
        prompt_logprobs=values["prompt_logprobs"],
    )


def check_vocabulary(ids: Collection[int], vocab_size: int, name: str) -> None:
    """Every id, none below 0, must be one that the model knows. Raises ApiError."""
    largest = max(ids, default=0)
    if largest >= vocab_size:
        raise ApiError(
            f"{name} holds the token id {largest}; the vocabulary ends at {vocab_size - 1}",
            param=name,
            code="invalid_value",
        )


def room(prompt_tokens: int, max_context_tokens: int, name: str) -> int:
    """How many tokens fit after a prompt. Raises ApiError when none does."""
    left = max_context_tokens - prompt_tokens
    if left < 1:
        raise ApiError(
            f"{name} has {prompt_tokens} tokens; with at least one to generate, "
            f"the context of {max_context_tokens} tokens is too short for it",
            param=name,
            code="context_length_exceeded",
        )
    return left


def allowed_tokens(asked: int | None, left: int, default: int, name: str) -> int:
    """How many tokens to generate. Raises ApiError when more are asked for than there is room."""
    if asked is None:
        return min(default, left)
    if asked > left:
        raise ApiError(
            f"{name} is {asked}, but the prompt leaves room for {left} in the model's context",
            param=name,
            code="context_length_exceeded",
        )
    return asked
