"""A coin in any greedy model: two tokens made equally likely by a bias on the second.

With the gap between the two best tokens known from logprobs, a logit bias of that gap on the
second makes every token a fair coin at temperature 1, and a bias of ``gap + x`` one whose second
side has probability ``1 / (1 + exp(-x / temperature))``. A probe's gap is the same at every
position, so the flips of one answer are independent and their distribution is known.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness.checks.assertions import assert_complete, assert_that
from harness.checks.context import CheckContext
from harness.checks.draws import contents
from harness.checks.example import Run

FLIPS: Final = 32


@dataclass(frozen=True, slots=True)
class Coin:
    """``token_id`` is the second side, ``text`` how it shows, ``gap`` its distance in nat."""

    token_id: int
    text: str
    gap: float

    def params(self, lead: float = 0.0) -> dict[str, Any]:
        """Parameters under which the second side leads the first by ``lead`` nat."""
        return {"logit_bias": {str(self.token_id): round(self.gap + lead, 4)}, "temperature": 1.0}

    def flips(self, text: str, tokens: int) -> int:
        """How many of the tokens of an answer show the second side."""
        return min(tokens, text.count(self.text))

    @staticmethod
    def outweighed(text: str, finish_reasons: Sequence[str]) -> bool:
        """Whether the model ended the answer before a flip: its ending may lead by more still."""
        return not text and "stop" in finish_reasons

    @staticmethod
    def probability(lead: float, temperature: float = 1.0) -> float:
        """The probability of the second side."""
        return 1.0 / (1.0 + math.exp(-lead / temperature))


async def measured_coin(ctx: CheckContext) -> Coin:
    """The model's coin, measured on one short answer. Ends the check where there is none."""
    second = ctx.session.oracle.second_token()
    if second is None:
        ctx.unsupported("no token is known to be second best everywhere (only probes have one)")
    token_id, text = second
    # A few prompts: where the model ends an answer by itself, one may show nothing.
    requests = [ctx.ask(f"gap{i}", ctx.prompt(12, f"coin {i}"), 4, logprobs=2) for i in range(4)]
    run = await ctx.run(*requests)
    assert_complete(*run.answers)
    gaps = [
        max(top.values()) - top[text]
        for answer in run.answers
        for chunk in answer.first.chunks
        for top in chunk.top_logprobs or ()
        if text in top
    ]
    if not gaps:
        ctx.unsupported("the second best token does not show among the top two logprobs")
    return Coin(token_id, text, statistics.median(gaps))


def binomial_is_plausible(
    hits: int, trials: int, probability: float, false_alarm_rate: float = 1e-7
) -> bool:
    """Whether a two-sided exact binomial test lets the count pass at this false-alarm rate."""
    from scipy.stats import binomtest

    return bool(binomtest(hits, trials, probability).pvalue >= false_alarm_rate)


async def flipped(ctx: CheckContext, coin: Coin, lead: float, **params: Any) -> tuple[int, int]:
    """Second sides and flips of a batch of sampled answers."""
    content = ctx.draw(contents(), f"content {sorted(params)}")
    fields = {**coin.params(lead), **params}
    rows = [ctx.ask(f"r{i}", ctx.prompt(6, f"{content}/{i}"), FLIPS, **fields) for i in range(6)]
    run = await ctx.run(*rows)
    ctx.evidence_of_overlap(run)
    assert_complete(*run.answers)
    return counted(run, coin)


def counted(run: Run, coin: Coin) -> tuple[int, int]:
    """Second sides and flips. An answer that ended early has fewer flips than were asked for."""
    hits = trials = 0
    for answer in run.answers:
        usage = answer.usage.completion_tokens if answer.usage else FLIPS
        ended = "stop" in answer.first.finish_reasons
        trials += usage - 1 if ended and usage else usage
        hits += coin.flips(answer.first.text, usage)
    return hits, trials


def assert_probability(hits: int, trials: int, probability: float, what: str) -> None:
    """The count is one that this probability gives."""
    assert_that(
        binomial_is_plausible(hits, trials, probability),
        f"{what}: {hits} of {trials} draws took a token of probability {probability:.3f}",
        expected=round(probability * trials, 1),
        actual=hits,
    )
