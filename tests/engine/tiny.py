"""Tiny random models and a driver for engine tests."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import torch

from reference_engine.engine import Engine
from reference_engine.model import LoadedModel
from reference_engine.request import Completion, Request, TokenEvent, TokenLogprobs

VOCAB = 160


@cache
def tiny_llama() -> Any:
    """A transformers Llama with random weights, two layers and grouped heads (3 to 1)."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=96,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=640,
        initializer_range=0.3,  # large enough that tokens differ and context matters
        bos_token_id=1,
        eos_token_id=2,
    )
    return LlamaForCausalLM(config).eval()


@cache
def tiny_model() -> LoadedModel:
    """The same weights, taken over by the engine."""
    return LoadedModel(copy.deepcopy(tiny_llama()))


def drain(engine: Engine, requests: Iterable[Request] = ()) -> dict[tuple[str, int], Completion]:
    """Submit everything at once, step until idle, and add the events up."""
    for request in requests:
        engine.submit(request)
    events: list[TokenEvent] = []
    while engine.has_work:
        events += engine.step()
    return collect(events)


def collect(events: Sequence[TokenEvent]) -> dict[tuple[str, int], Completion]:
    """Completions by (request id, choice) from finished streams of events."""
    streams: dict[tuple[str, int], list[TokenEvent]] = {}
    for event in events:
        streams.setdefault((event.request_id, event.choice), []).append(event)
    return {key: _completion(stream) for key, stream in streams.items()}


def _completion(stream: list[TokenEvent]) -> Completion:
    assert stream[-1].finish_reason is not None, "the stream has no end"
    assert all(event.finish_reason is None for event in stream[:-1]), "the stream ends twice"
    scores: list[TokenLogprobs] = [e.logprobs for e in stream if e.logprobs is not None]
    return Completion(
        request_id=stream[0].request_id,
        choice=stream[0].choice,
        token_ids=tuple(e.token_id for e in stream if e.token_id is not None),
        logprobs=tuple(scores),
        finish_reason=stream[-1].finish_reason,
        prompt_logprobs=stream[0].prompt_logprobs,
    )
