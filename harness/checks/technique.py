"""TEC: which techniques a server uses, told from timing alone, each with an effect and a control.

Every measure is a ratio of times taken in the same minute on the same machine, taken again until
most rounds agree (`rounds`), and the two cases lie far apart, so that a slow or busy machine moves
both sides. A round whose control fails (a long prompt that takes no longer than a short one, say)
decides nothing.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any, Final

from harness.checks.assertions import assert_complete, broken
from harness.checks.capabilities import Capability
from harness.checks.context import CheckContext
from harness.checks.example import after
from harness.checks.registry import check
from harness.checks.rounds import AGREEING, CONTROLLED, Round, accusing_effect, ratio
from harness.transcript import RequestTranscript
from workloads.workload import WorkloadRequest

LONG_TOKENS: Final = 1000
SHORT_TOKENS: Final = 8


def long_tokens(ctx: CheckContext) -> int:
    """A prompt long enough for its prefill to be seen, as far as the context allows."""
    limit = ctx.capabilities.context_limit
    return LONG_TOKENS if limit is None else min(LONG_TOKENS, limit // 2)


def fresh(ctx: CheckContext, key: str, tokens: int, max_tokens: int) -> WorkloadRequest:
    """A request whose prompt no cache has seen, and that goes on to ``max_tokens`` if it can."""
    extra: dict[str, Any] = {}
    if Capability.IGNORE_EOS in ctx.capabilities:
        extra["ignore_eos"] = True
    prompt = ctx.prompt(tokens, f"{key}/{ctx.session.nonce()}")
    return ctx.ask(key, prompt, max_tokens, stream=True, **extra)


def ttft_s(answer: RequestTranscript) -> float:
    """Seconds from sending to the first token."""
    return (answer.t_first_s or 0.0) - (answer.t_sent_s or 0.0)


def lasted_s(answer: RequestTranscript) -> float:
    """Seconds from sending to the last token."""
    return (answer.t_last_s or 0.0) - (answer.t_sent_s or 0.0)


def gaps_s(answer: RequestTranscript) -> list[float]:
    """Seconds between successive token-bearing chunks."""
    return [b - a for a, b in _gaps(answer)]


def largest_gap_within_s(answer: RequestTranscript, began_s: float, ended_s: float) -> float | None:
    """The longest time without a token that overlaps the interval; None if the stream ended in it.

    Times are seconds from the start of the run.
    """
    if (answer.t_last_s or 0.0) < ended_s:
        return None
    overlapping = [b - a for a, b in _gaps(answer) if a < ended_s and b > began_s]
    return max(overlapping, default=None)


def _gaps(answer: RequestTranscript) -> list[tuple[float, float]]:
    return list(pairwise(chunk.t_s for chunk in answer.first.chunks))


async def timed_alone(ctx: CheckContext, tokens: int, max_tokens: int) -> RequestTranscript:
    """One fresh request on the idle server."""
    run = await ctx.run(fresh(ctx, "alone", tokens, max_tokens))
    assert_complete(*run.answers)
    return run["alone"]


@check(
    "TEC-1",
    "The time between tokens is not that of reading the whole context again (keys are cached)",
    answers=["vllm#25538", "nano-vllm#144"],
    shows=CONTROLLED,
    cost=0,
)
async def keys_are_cached(ctx: CheckContext) -> None:
    """What a long context adds to the time between tokens, against what it adds to the first one.

    About once as much without a cache where prompts are read in one step, and up to (c + 1) / 2
    times less where they are read in c; hundreds of times less with one.
    """

    async def measure() -> Round:
        short = await timed_alone(ctx, SHORT_TOKENS, 12)
        long = await timed_alone(ctx, long_tokens(ctx), 12)
        if min(len(gaps_s(short)), len(gaps_s(long))) < 4:
            return Round(0.0, 0.0)
        between_s = median(gaps_s(long)) - median(gaps_s(short))
        added = ratio(ttft_s(long) - ttft_s(short), between_s)
        return Round(min(added, 1000.0), ratio(ttft_s(long), ttft_s(short)))

    effect = await accusing_effect(ctx, measure, 10)
    if effect is not None:
        broken(
            f"a long context adds 1/{effect:.1f} as much to each token as to the first one",
            expected="a hundredth or less",
            actual=effect,
            guess="the whole context is computed again for every token (no KV cache)",
        )


@check(
    "TEC-2",
    "A long prompt does not stop the running streams for as long as it takes to read it",
    answers=["sglang-jax#1328", "vllm#26042"],
    shows=CONTROLLED,
    cost=0,
)
async def prefill_is_chunked(ctx: CheckContext) -> None:
    most = ctx.capabilities.context_limit or 2 * LONG_TOKENS
    tokens = max(long_tokens(ctx), min(2 * LONG_TOKENS, most - 64))

    async def measure() -> Round:
        steady = gaps_s(await timed_alone(ctx, SHORT_TOKENS, 16))
        stream = fresh(ctx, "stream", SHORT_TOKENS, 96)
        run = await ctx.run(stream, after(fresh(ctx, "late", tokens, 1), "stream", 4))
        assert_complete(*run.answers)
        late = run["late"]
        stood_s = largest_gap_within_s(run["stream"], late.t_sent_s or 0.0, late.t_first_s or 0.0)
        if stood_s is None or not steady:
            return Round(0.0, 0.0)
        return Round(ratio(ttft_s(late), stood_s), ratio(ttft_s(late), median(steady)))

    effect = await accusing_effect(ctx, measure, 1 / 0.7)
    if effect is not None:
        broken(
            f"a running stream stood still for {1 / effect:.2f} of the time that the long prompt "
            "beside it took",
            expected="a fraction of it",
            actual=1 / effect,
            guess="a prompt is read in one step while everybody waits (no chunked prefill)",
        )


@check(
    "TEC-3",
    "A batch costs what its tokens cost, not its longest prompt times its size (no padding)",
    answers=["vllm#10336", "mlx-lm#1736"],
    shows=CONTROLLED,
    cost=0,
)
async def batches_are_ragged(ctx: CheckContext) -> None:
    """A long prompt is read beside short prompts and beside streams of single tokens: a padded
    batch would cost as much as that many long prompts.
    """
    size, tokens = 4, long_tokens(ctx) // 2

    async def measure() -> Round:
        one_s = await _all_first_s(ctx, [tokens])
        mixed_s = await _all_first_s(ctx, [tokens] + [SHORT_TOKENS] * (size - 1))
        full_s = await _all_first_s(ctx, [tokens] * size)
        beside_s = await _first_beside_streams_s(ctx, tokens, size - 1)
        if beside_s is None:
            return Round(0.0, 0.0)
        share = ratio(max(mixed_s, beside_s) - one_s, (size - 1) * one_s)
        return Round(1 / max(share, 0.01), ratio(full_s, one_s))

    effect = await accusing_effect(ctx, measure, 1 / 0.55)
    if effect is not None:
        broken(
            f"{size - 1} short prompts or single tokens beside a long prompt cost "
            f"{1 / effect:.2f} of what as many long prompts would cost",
            expected="little",
            actual=1 / effect,
            guess="every row is padded to the longest of the batch",
        )


async def _all_first_s(ctx: CheckContext, lengths: list[int]) -> float:
    """Seconds until each of these prompts, sent together, has its first token."""
    run = await ctx.run(*[fresh(ctx, f"r{i}", n, 2) for i, n in enumerate(lengths)])
    assert_complete(*run.answers)
    return max(answer.t_first_s or 0.0 for answer in run.answers)


async def _first_beside_streams_s(ctx: CheckContext, tokens: int, streams: int) -> float | None:
    """Seconds to the first token of a prompt read while streams run; None if one ended before."""
    running = [fresh(ctx, f"stream{i}", SHORT_TOKENS, 96) for i in range(streams)]
    late = after(fresh(ctx, "beside", tokens, 1), running[-1].key, 4)
    run = await ctx.run(*running, late)
    assert_complete(*run.answers)
    first_s = run["beside"].t_first_s or 0.0
    if any((run[r.key].t_last_s or 0.0) < first_s for r in running):
        return None
    return ttft_s(run["beside"])


@check(
    "TEC-4",
    "A slot that becomes free is filled at once, while the others of its batch go on",
    answers=["vllm#45414", "sglang-jax#1328", "optimum-neuron#470"],
    shows=CONTROLLED,
    cost=0,
)
async def slots_are_refilled(ctx: CheckContext) -> None:
    """The first short request may find a place that was free from the start; the next ones need
    the place that it leaves.
    """
    shorts, out = 4, 6

    async def measure() -> Round:
        alone = await timed_alone(ctx, SHORT_TOKENS, out)
        long = fresh(ctx, "long", SHORT_TOKENS, 192)
        chain = [after(fresh(ctx, "s0", SHORT_TOKENS, out), "long", 2)]
        for number in range(1, shorts):
            request = fresh(ctx, f"s{number}", SHORT_TOKENS, out)
            chain.append(after(request, f"s{number - 1}", out))
        run = await ctx.run(long, *chain)
        assert_complete(*run.answers)
        ended_s = run["long"].t_last_s or 0.0
        within = sum((run[r.key].t_last_s or 0.0) < ended_s for r in chain)
        return Round(within, ratio(lasted_s(run["long"]), 2 * lasted_s(alone)))

    effect = await accusing_effect(ctx, measure, 2)
    if effect is not None:
        broken(
            f"{effect:g} of {shorts} short requests, one after another, were answered while the "
            "long answer was made",
            expected="all of them, and two at the least",
            actual=effect,
            guess="a batch is refilled only when all of it has ended (static batching)",
        )


@check(
    "TEC-5",
    "A prompt that was just read is read faster the second time (prefix caching)",
    answers=["lmdeploy#3308", "vllm#37076"],
    shows=CONTROLLED,
    cost=0,
)
async def prefixes_are_cached(ctx: CheckContext) -> None:
    async def measure() -> Round:
        short = await timed_alone(ctx, SHORT_TOKENS, 2)
        request = fresh(ctx, "cold", long_tokens(ctx), 2)
        cold = await ctx.run(request)
        warm = await ctx.run(replace(request, key="warm"))
        assert_complete(*cold.answers, *warm.answers)
        cold_s = ttft_s(cold["cold"])
        return Round(ratio(cold_s, ttft_s(warm["warm"])), ratio(cold_s, ttft_s(short)))

    effect = await accusing_effect(ctx, measure, 1.5)
    if effect is not None:
        ctx.unsupported(f"no prefix caching shows: cold over warm is {effect:.2f}")


@check(
    "TEC-6",
    "Requests sent together are answered sooner than one after another (they share steps)",
    answers=["sendnn-inference#314", "sglang-jax#1328"],
    shows=AGREEING,
    cost=0,
)
async def requests_are_batched(ctx: CheckContext) -> None:
    size, out = 8, 24

    async def measure() -> Round:
        alone = await timed_alone(ctx, SHORT_TOKENS, out)
        run = await ctx.run(*[fresh(ctx, f"r{i}", SHORT_TOKENS, out) for i in range(size)])
        assert_complete(*run.answers)
        ctx.evidence_of_overlap(run)
        all_s = max(answer.t_last_s or 0.0 for answer in run.answers)
        return Round(ratio(size * lasted_s(alone), all_s))

    effect = await accusing_effect(ctx, measure, 1.15)
    if effect is not None:
        broken(
            f"{size} requests together are {effect:.2f} times as fast as one after another",
            expected="clearly more than 1",
            actual=effect,
            guess="requests are served one after another",
        )
