"""The next token: from one row of logits, the request's own parameters and nothing else.

Every row is sampled alone, in fixed shapes. The draw is a hash of (seed, choice, position): it has
no state, so neither batch mates nor preemption nor the other choices can move it.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reference_engine.request import Request, SamplingParams, TokenLogprobs


class SampledRequest(Protocol):
    """What sampling has to know of a request."""

    @property
    def request(self) -> Request:
        """The request, as it was submitted."""

    @property
    def seed(self) -> int:
        """Keys its draws."""

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end a choice."""


class Sampler:
    """Chooses tokens, for the engine and for `solo`. It has no state."""

    def choose(
        self, logits: Tensor, live: SampledRequest, choice: int, output_ids: Sequence[int]
    ) -> int:
        """The token after ``output_ids``. logits: [vocab] fp32.

        In order: penalties, logit bias, ``min_tokens``; then the arg max (lowest id on a tie) if
        the temperature is 0, else temperature, top_k, top_p, min_p and one draw.
        """
        params, prompt_ids = live.request.params, live.request.prompt_ids
        row = self.penalised(logits, params, prompt_ids, output_ids)
        row = self.biased(row, params)
        row = self.held_open(row, params, prompt_ids, output_ids, live.end_ids)
        if params.temperature == 0:
            return int(np.argmax(row.numpy()))  # the first of equals
        position = len(prompt_ids) + len(output_ids)
        draw = self.draw(live.seed, choice, position)
        return inverse_cdf(self.candidates(row, params), draw)

    def draw(self, seed: int, choice: int, position: int) -> float:
        """A number in [0, 1) that depends on the three arguments alone."""
        message = struct.pack("<qqq", seed, choice, position)
        digest = hashlib.blake2b(message, digest_size=8).digest()
        return float(int.from_bytes(digest, "little") >> 11) / 2.0**53

    def penalised(
        self,
        logits: Tensor,
        params: SamplingParams,
        prompt_ids: Sequence[int],
        output_ids: Sequence[int],
    ) -> Tensor:
        """Logits after the penalties: repetition over prompt and output, the others over output."""
        row = logits
        if params.repetition_penalty != 1.0:
            seen = torch.tensor(sorted({*prompt_ids, *output_ids}))
            penalty = params.repetition_penalty
            row = row.clone()
            row[seen] = torch.where(row[seen] > 0, row[seen] / penalty, row[seen] * penalty)
        if output_ids and (params.presence_penalty or params.frequency_penalty):
            row = row.clone()
            for token, count in Counter(output_ids).items():
                row[token] -= params.presence_penalty + params.frequency_penalty * count
        return row

    def biased(self, row: Tensor, params: SamplingParams) -> Tensor:
        """Logits after the request's logit bias."""
        if not params.logit_bias:
            return row
        row = row.clone()
        for token, bias in params.logit_bias.items():
            row[token] += bias
        return row

    def held_open(
        self,
        row: Tensor,
        params: SamplingParams,
        prompt_ids: Sequence[int],
        output_ids: Sequence[int],
        end_ids: frozenset[int],
    ) -> Tensor:
        """Logits in which nothing can end the text before ``min_tokens``."""
        if len(output_ids) >= params.min_tokens or not end_ids:
            return row
        row = row.clone()
        row[sorted(end_ids)] = float("-inf")
        return row

    def candidates(self, row: Tensor, params: SamplingParams) -> NDArray[np.float64]:
        """The distribution that is drawn from."""
        return candidate_probabilities(row, params)


def candidate_probabilities(row: Tensor, params: SamplingParams) -> NDArray[np.float64]:
    """The distribution that is drawn from, in token order. row: [vocab] -> [vocab].

    top_k, top_p and min_p keep a prefix of the tokens sorted by descending logit, equal logits by
    ascending id. top_p keeps the token that crosses the threshold.
    """
    scaled = row.double().numpy() / params.temperature
    weights = np.exp(scaled - scaled.max())
    if params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0:
        order = np.argsort(-scaled, kind="stable")
        keep = np.zeros(len(order), dtype=bool)
        keep[order[: _kept(weights[order], params)]] = True
        weights = np.where(keep, weights, 0.0)
    return np.asarray(weights / np.cumsum(weights)[-1])


def _kept(sorted_weights: NDArray[np.float64], params: SamplingParams) -> int:
    """How many of the most likely tokens may be drawn; at least one."""
    kept = len(sorted_weights)
    if params.top_k > 0:
        kept = min(kept, params.top_k)
    if params.top_p < 1.0:
        cumulated = np.cumsum(sorted_weights[:kept])
        kept = int(np.searchsorted(cumulated, params.top_p * cumulated[-1])) + 1
    if params.min_p > 0.0:
        likely = sorted_weights[:kept] >= params.min_p * sorted_weights[0]
        kept = int(np.count_nonzero(likely))
    return max(1, min(kept, len(sorted_weights)))


def inverse_cdf(probabilities: NDArray[np.float64], draw: float) -> int:
    """The first token at which the cumulated probability exceeds ``draw``."""
    cumulated = np.cumsum(probabilities)
    token = int(np.searchsorted(cumulated, draw * cumulated[-1], side="right"))
    return min(token, int(np.flatnonzero(probabilities)[-1]))


def describe_logprobs(logprobs: Tensor, token_id: int, top: int) -> TokenLogprobs:
    """The token's natural logprob and the ``top`` best ones. logprobs: [vocab].

    Ties are listed by ascending id, as the arg max takes them.
    """
    best: tuple[tuple[int, float], ...] = ()
    if top > 0:
        values, ids = torch.sort(logprobs, descending=True, stable=True)
        best = tuple(zip(ids[:top].tolist(), values[:top].tolist(), strict=True))
    return TokenLogprobs(token_id, float(logprobs[token_id]), best)
