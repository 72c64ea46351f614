"""The definition of the right answer: one request, alone, without a cache.

Every token is chosen after the whole sequence has gone through the model again. Slow on purpose;
what the engine does quickly must come out in exactly these bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from reference_engine.admission import check_request, end_ids, finish_reason, resolved_seed
from reference_engine.attention.exact import AttentionStep
from reference_engine.batch import BatchBuilder, BatchSequence
from reference_engine.kv_store import StepKeys
from reference_engine.model import LoadedModel
from reference_engine.numerics import KEY_BLOCK, log_softmax
from reference_engine.request import Completion, Request, TokenLogprobs
from reference_engine.sampler import Sampler, describe_logprobs


@dataclass(frozen=True, slots=True)
class SoloRequest:
    """What the sampler has to know."""

    request: Request
    seed: int
    end_ids: frozenset[int]


def solo(model: LoadedModel, request: Request) -> list[Completion]:
    """The completions of ``request``, one a choice. Raises RequestRefused as the engine does."""
    check_request(model, request)
    seed = resolved_seed(request.params)
    prompt_logprobs = score_prompt(model, request) if _wants_prompt_scores(request) else None
    return [
        _complete(model, request, choice, seed, prompt_logprobs)
        for choice in range(request.params.n)
    ]


def full_logits(model: LoadedModel, token_ids: Sequence[int], last: int = 1) -> Tensor:
    """Logits after each of the ``last`` positions: [last, vocab] fp32."""
    page = math.lcm(KEY_BLOCK, model.attention.page_multiple)
    pages = range(-(-len(token_ids) // page))
    batch = BatchBuilder(page).build([BatchSequence(tuple(token_ids), 0, (pages,), last)])
    keys = StepKeys(len(model.layers), page)
    return model.logits(batch, AttentionStep(batch, keys, model.attention)).cpu()


def score_prompt(model: LoadedModel, request: Request) -> tuple[TokenLogprobs | None, ...]:
    """What the model thinks of each prompt token, given those before it; None for the first."""
    ids = request.prompt_ids
    logprobs = log_softmax(full_logits(model, ids, last=len(ids)))
    top = request.params.prompt_logprobs or 0
    scored = [
        describe_logprobs(row, token, top) for row, token in zip(logprobs, ids[1:], strict=False)
    ]
    return (None, *scored)


def _wants_prompt_scores(request: Request) -> bool:
    return request.params.prompt_logprobs is not None


def _complete(
    model: LoadedModel,
    request: Request,
    choice: int,
    seed: int,
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None,
) -> Completion:
    params = request.params
    asked = SoloRequest(request, seed, end_ids(model, request))
    output: list[int] = []
    scores: list[TokenLogprobs] = []
    reason = None
    while reason is None:
        logits = full_logits(model, (*request.prompt_ids, *output))
        token = Sampler().choose(logits[0], asked, choice, output)
        if params.logprobs is not None:
            scores.append(describe_logprobs(log_softmax(logits)[0], token, params.logprobs))
        output.append(token)
        reason = finish_reason(token, len(output), request, asked.end_ids)
    return Completion(
        request_id=request.request_id,
        choice=choice,
        token_ids=tuple(output),
        logprobs=tuple(scores),
        finish_reason=reason,
        prompt_logprobs=prompt_logprobs,
    )
