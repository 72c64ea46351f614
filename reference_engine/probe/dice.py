"""The dice probe: logits that are known constants, so sampling can be tested against exact odds.

A dice probe follows the same rule as the others, but an output token's logit is only a little
higher for each bit that is right: ``weight[b]`` if bit ``b`` agrees with the rule's token,
``-weight[b]`` if not, with ``weight[b] = 2 ** b / 16``. So the 64 output tokens have 64
different logits, 1/8 apart between -63/16 and 63/16, each bit is a biased coin of its own, and
which token has which odds depends on everything the rule depends on. All other tokens have a logit
of -60. A model's logits differ from these by less than 0.0005 in float32 and 0.02 in bfloat16. At
temperature 0 a dice probe answers as the plain one does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from reference_engine.probe.config import ProbeConfig
from reference_engine.probe.rule import Rule
from reference_engine.probe.vocabulary import vocabulary
from reference_engine.request import SamplingParams

OTHER_LOGIT: Final = -60.0


def coin_weights(config: ProbeConfig) -> tuple[float, ...]:
    """What each bit of an output token adds to its logit: the shown bits, then the sign bits."""
    bits = config.shown_bits + config.sign_bits
    return tuple(2.0**bit / 16 for bit in range(bits))


def dice_logits(config: ProbeConfig, ids: Sequence[int]) -> list[float]:
    """The logits after ``ids``, one for each token of the vocabulary.

    Raises ValueError if ``config`` is no dice probe, and for a prompt that `Rule` refuses.
    """
    if not config.dice:
        raise ValueError(f"{config.name} is no dice probe: its odds are 1 and 0")
    table = vocabulary(config)
    right = table.output_ids.index(Rule(config).next_token(ids))
    logits = [OTHER_LOGIT] * table.size
    for place, token_id in enumerate(table.output_ids):
        logits[token_id] = sum(
            weight if _bit(config, place, bit) == _bit(config, right, bit) else -weight
            for bit, weight in enumerate(coin_weights(config))
        )
    return logits


def _bit(config: ProbeConfig, place: int, bit: int) -> int:
    """Bit ``bit`` of an output token: the shown bits count first, then the sign bits."""
    shown, signs = divmod(place, 1 << config.sign_bits)
    return shown >> bit & 1 if bit < config.shown_bits else signs >> (bit - config.shown_bits) & 1


def token_probabilities(
    config: ProbeConfig, ids: Sequence[int], prompt_tokens: int, params: SamplingParams
) -> list[float]:
    """The exact odds of each token after ``ids``, of which the first ``prompt_tokens`` are prompt.

    As the OpenAI API and its dialects define them, in this order: repetition penalty over prompt
    and output, presence and frequency penalty over the output, logit bias, temperature, top_k,
    top_p (the token that crosses the threshold stays), min_p. At temperature 0 one token has 1.
    Raises ValueError as `dice_logits` does.
    """
    logits = _adjusted(dice_logits(config, ids), ids, prompt_tokens, params)
    order = sorted(range(len(logits)), key=lambda token_id: (-logits[token_id], token_id))
    probabilities = [0.0] * len(logits)
    if params.temperature == 0:
        probabilities[order[0]] = 1.0
        return probabilities
    best = logits[order[0]]
    weights = [math.exp((logits[token_id] - best) / params.temperature) for token_id in order]
    kept = _kept(weights, params)
    total = math.fsum(weights[:kept])
    for token_id, weight in zip(order[:kept], weights, strict=False):
        probabilities[token_id] = weight / total
    return probabilities


def _adjusted(
    logits: list[float], ids: Sequence[int], prompt_tokens: int, params: SamplingParams
) -> list[float]:
    for token_id in set(ids):
        if logits[token_id] > 0:
            logits[token_id] /= params.repetition_penalty
        else:
            logits[token_id] *= params.repetition_penalty
    for token_id, count in Counter(ids[prompt_tokens:]).items():
        logits[token_id] -= params.presence_penalty + params.frequency_penalty * count
    for token_id, bias in params.logit_bias.items():
        logits[token_id] += bias
    return logits


def _kept(weights: Sequence[float], params: SamplingParams) -> int:
    """How many of the tokens, most likely first, may be drawn; at least one."""
    kept = len(weights) if params.top_k <= 0 else min(params.top_k, len(weights))
    if params.top_p < 1.0:
        limit, mass = params.top_p * math.fsum(weights[:kept]), 0.0
        for index in range(kept):
            mass += weights[index]
            if mass >= limit:
                kept = index + 1
                break
    return max(1, sum(weight >= params.min_p * weights[0] for weight in weights[:kept]))
