"""How often each kind of cache fault changes the answer, measured on the real weights."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Final

import torch
from torch import Tensor

from reference_engine.probe.config import BOS_ID, FIRST_BYTE_ID, ProbeConfig
from reference_engine.probe.rule import Rule
from reference_engine.probe.sensitivity.balance import balanced_prompt
from reference_engine.probe.sensitivity.cache_faults import CacheFault, Places, Scope
from reference_engine.probe.sensitivity.cache_model import CacheModel, OpenCache
from reference_engine.probe.sensitivity.limit import Limit
from reference_engine.probe.vocabulary import vocabulary

HORIZONS: Final = (8, 24, 64)
_STATED: Final = 24
PROMPT_TOKENS: Final = (40, 129, 300)
PROMPT_TOKENS_WITH_WINDOWS: Final = (80, 129, 300)
CERTAINTY: Final = 0.9999
_Z: Final = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class Rate:
    """``hits`` of ``tries``."""

    hits: int
    tries: int

    @property
    def value(self) -> float:
        """The plain proportion."""
        return self.hits / self.tries

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% confidence interval after Wilson (1927)."""
        square = _Z * _Z
        centre = (self.hits + square / 2) / (self.tries + square)
        spread = self.hits * (self.tries - self.hits) / self.tries + square / 4
        half = _Z * math.sqrt(spread) / (self.tries + square)
        return max(centre - half, 0.0), min(centre + half, 1.0)

    @property
    def requests_for_certainty(self) -> int | None:
        """Requests after which at least one shows the fault with probability 0.9999.

        Reckoned from the lower end of the interval; None where no request showed it.
        """
        low = self.interval[0]
        if self.hits == 0 or low <= 0:
            return None
        return 1 if low >= CERTAINTY else math.ceil(math.log(1 - CERTAINTY) / math.log1p(-low))


@dataclass(frozen=True, slots=True)
class Detection:
    """For one kind of fault: how many answers differed within each horizon, in tokens.

    ``by_layer[l]`` counts within 24 tokens, for faults that hit one layer. ``limit`` counts the
    requests that can show it within 24 tokens by the rule (see `limit`), ``missed`` those of them
    that did not.
    """

    fault: CacheFault
    rates: Mapping[int, Rate]
    by_layer: Mapping[int, Rate]
    limit: Rate
    missed: int

    def to_json(self) -> dict[str, Any]:
        """A plain JSON object."""
        return {
            "fault": self.fault.name,
            "sentence": self.fault.sentence,
            "scope": self.fault.scope.value,
            "rates": {
                str(tokens): {
                    "hits": rate.hits,
                    "tries": rate.tries,
                    "value": round(rate.value, 4),
                    "interval_95": [round(end, 4) for end in rate.interval],
                }
                for tokens, rate in self.rates.items()
            },
            "requests_for_0.9999_at_24_tokens": self.rates[24].requests_for_certainty,
            "limit_by_the_rule_at_24_tokens": [self.limit.hits, self.limit.tries],
            "limit_probability": self.limit.value,
            "missed_though_the_rule_differs": self.missed,
            "by_layer_at_24_tokens": {
                str(layer): [rate.hits, rate.tries] for layer, rate in self.by_layer.items()
            },
        }


def prompt_lengths(config: ProbeConfig) -> tuple[int, ...]:
    """In tokens; all longer than the windows, where there are windows."""
    return PROMPT_TOKENS_WITH_WINDOWS if config.windows else PROMPT_TOKENS


@dataclass(frozen=True, slots=True)
class _Batch:
    """Prompts of one length, their healthy cache and logits, and the right answers."""

    prompts: Tensor
    cache: OpenCache
    logits: Tensor
    answers: Tensor
    limit: Limit


def measure(
    config: ProbeConfig,
    faults: Sequence[CacheFault],
    *,
    requests_per_length: int = 80,
    lengths: Sequence[int] | None = None,
    balanced: bool = True,
    seed: int = 0,
) -> Iterator[Detection]:
    """Break the cache of every request with each fault and see when its answer first differs.

    For each length of ``lengths`` (by default `prompt_lengths`) there are ``requests_per_length``
    random prompts, ending with all sums near zero if ``balanced``. EOS is ignored, so every answer
    has 64 tokens.
    """
    model, rng = CacheModel(config), random.Random(seed)
    tokens = max(HORIZONS)
    with torch.inference_mode():
        batches = [
            _batch(model, [_prompt(config, n, balanced, rng) for _ in range(requests_per_length)])
            for n in lengths or prompt_lengths(config)
        ]
        for fault in faults:
            generator = torch.Generator().manual_seed(seed)
            firsts: list[int | None] = []
            layers: list[list[int]] = []
            may: list[bool] = []
            for batch in batches:
                places = _places(config, batch, fault, generator)
                firsts += _first_differences(model, batch, fault, places, tokens)
                layers += places.layers
                may += _may_show(batch, fault, places)
            yield _detection(fault, firsts, layers, may)


def _may_show(batch: _Batch, fault: CacheFault, places: Places) -> list[bool]:
    """Which requests can show the fault within 24 tokens."""
    drawn = zip(places.layers, places.slot.tolist(), places.other.tolist(), strict=True)
    return [
        batch.limit.may_show(fault.name, row, layers, slot, other, _STATED)
        for row, (layers, slot, other) in enumerate(drawn)
    ]


def _prompt(config: ProbeConfig, tokens: int, balanced: bool, rng: random.Random) -> list[int]:
    if balanced:
        return balanced_prompt(config, tokens, rng)
    return [BOS_ID] + [rng.randrange(FIRST_BYTE_ID, FIRST_BYTE_ID + 256) for _ in range(tokens - 1)]


def _batch(model: CacheModel, prompts: list[list[int]]) -> _Batch:
    rule, tokens = Rule(model.config), max(HORIZONS)
    answers = [rule.generate(ids, tokens, ignore_eos=True).token_ids for ids in prompts]
    ids = torch.tensor(prompts)
    cache, logits = model.prefill(ids, tokens)
    limit = Limit(model.config, prompts, answers)
    return _Batch(ids, cache, logits, torch.tensor(answers), limit)


def _places(
    config: ProbeConfig, batch: _Batch, fault: CacheFault, generator: torch.Generator
) -> Places:
    """A random slot in each request, and another of the request whose symbol differs."""
    requests, tokens = batch.prompts.shape
    symbols = torch.tensor(vocabulary(config).symbols)[batch.prompts]
    first = 1
    if config.windows:  # what the next tokens still see
        first = tokens - min(window for window in config.windows if window is not None) // 2
    slot = torch.randint(first, tokens, (requests,), generator=generator)
    other = torch.empty_like(slot)
    for row in range(requests):
        differs = (symbols[row] != symbols[row, slot[row]]).nonzero().flatten()
        differs = differs[differs >= first]
        pick = torch.randint(len(differs), (1,), generator=generator)
        other[row] = differs[pick].item()
    levels = list(range(config.layers))
    if fault.full_layers_only:
        levels = [level for level in levels if config.window(level) is None]
    one = fault.scope is Scope.ONE_LAYER
    layers = [[levels[row % len(levels)]] if one else levels for row in range(requests)]
    return Places(torch.arange(requests), slot, other, layers, generator)


def _first_differences(
    model: CacheModel, batch: _Batch, fault: CacheFault, places: Places, tokens: int
) -> list[int | None]:
    """The index of each request's first wrong token with the fault in its cache, None if none is.

    The broken model's own tokens are fed back, greedily; a request whose answer has differed once
    is done.
    """
    if fault.sees_ahead:
        cache, logits = model.prefill(batch.prompts, tokens, fault.sees_ahead)
    else:
        cache, logits = batch.cache.copy(), batch.logits
    fault.apply(cache, places)
    right = batch.answers
    firsts: list[int | None] = [None] * len(right)
    rows = torch.arange(len(right))
    answer = logits.argmax(-1)
    for index in range(tokens):
        wrong = answer != right[:, index]
        for row in rows[wrong].tolist():
            firsts[row] = index
        if bool(wrong.any()):
            rows, right, answer = rows[~wrong], right[~wrong], answer[~wrong]
            cache.keep(~wrong)
        if len(rows) == 0 or index + 1 == tokens:
            break
        answer = model.step(answer, cache).argmax(-1)
    return firsts


def _detection(
    fault: CacheFault,
    firsts: Sequence[int | None],
    layers: Sequence[list[int]],
    may: Sequence[bool],
) -> Detection:
    def rate(tokens: int, among: Sequence[int | None]) -> Rate:
        return Rate(sum(f is not None and f < tokens for f in among), len(among))

    by_layer = {}
    if fault.scope is Scope.ONE_LAYER:
        for layer in sorted({hit[0] for hit in layers}):
            mine = [f for f, hit in zip(firsts, layers, strict=True) if hit[0] == layer]
            by_layer[layer] = rate(_STATED, mine)
    seen = [first is not None and first < _STATED for first in firsts]
    missed = sum(able and not shown for able, shown in zip(may, seen, strict=True))
    rates = {tokens: rate(tokens, firsts) for tokens in HORIZONS}
    return Detection(fault, rates, by_layer, Rate(sum(may), len(may)), missed)
