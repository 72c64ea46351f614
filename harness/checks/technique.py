"""TEC: which techniques a server uses, told from timing alone, each with an effect and a control.

Every measure is a ratio of times taken in the same minute on the same machine, medians of several
rounds, and the two cases lie far apart, so that a slow or busy machine moves both sides. A measure
whose control fails (a long prompt that takes no longer than a short one, say) decides nothing.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any, Final

from harness.checks.assertions import assert_complete, assert_that
from harness.checks.capabilities import Capability
from harness.checks.context import CheckContext
from harness.checks.example import after
from harness.checks.registry import check
from harness.transcript import RequestTranscript
from workloads.workload import WorkloadRequest

ROUNDS: Final = 3
LONG_TOKENS: Final = 1000
SHORT_TOKENS: Final = 8
_CONTROL: Final = {"control": 2.0}


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


def gaps_s(answer: RequestTranscript) -> list[float]:
    """Seconds between successive token-bearing chunks."""
    times = [chunk.t_s for chunk in answer.first.chunks]
    return [b - a for a, b in pairwise(times)]


async def timed_alone(ctx: CheckContext, tokens: int, max_tokens: int) -> RequestTranscript:
    """One fresh request on the idle server."""
    run = await ctx.run(fresh(ctx, "alone", tokens, max_tokens))
    assert_complete(*run.answers)
    return run["alone"]


async def prefill_control(ctx: CheckContext) -> tuple[float, float]:
    """Median TTFT of a long and of a short prompt; their ratio is the control of these checks."""
    long, short = [], []
    for _ in range(ROUNDS):
        long.append(ttft_s(await timed_alone(ctx, long_tokens(ctx), 2)))
        short.append(ttft_s(await timed_alone(ctx, SHORT_TOKENS, 2)))
    ctx.evidence("control", median(long) / max(median(short), 1e-6))
    return median(long), median(short)


@check(
    "TEC-1",
    "The time between tokens is not that of reading the whole context again (keys are cached)",
    answers=["vllm#25538", "nano-vllm#144"],
    shows=_CONTROL,
    cost=0,
)
async def keys_are_cached(ctx: CheckContext) -> None:
    read_s, _ = await prefill_control(ctx)
    gaps = [
        gap for _ in range(ROUNDS) for gap in gaps_s(await timed_alone(ctx, long_tokens(ctx), 12))
    ]
    if not gaps:
        return
    effect = read_s / max(median(gaps), 1e-6)
    ctx.evidence("effect", effect)
    assert_that(
        effect >= 2.5,
        f"a token after a long prompt takes 1/{effect:.1f} of reading the prompt",
        expected="much less than reading the prompt",
        actual=median(gaps),
        guess="the whole context is computed again for every token (no KV cache)",
    )


@check(
    "TEC-2",
    "A long prompt does not stop the running streams for as long as it takes to read it",
    answers=["sglang-jax#1328", "vllm#26042"],
    shows=_CONTROL,
    cost=0,
)
async def prefill_is_chunked(ctx: CheckContext) -> None:
    most = ctx.capabilities.context_limit or 2 * LONG_TOKENS
    tokens = max(long_tokens(ctx), min(2 * LONG_TOKENS, most - 64))
    shares = []
    for _ in range(ROUNDS):
        alone_s = ttft_s(await timed_alone(ctx, tokens, 1))
        steady_s = median(gaps_s(await timed_alone(ctx, SHORT_TOKENS, 16)) or [0.0])
        stream = fresh(ctx, "stream", SHORT_TOKENS, 96)
        run = await ctx.run(stream, after(fresh(ctx, "late", tokens, 1), "stream", 4))
        assert_complete(*run.answers)
        ctx.evidence("control", alone_s / max(steady_s, 1e-6))
        shares.append(max(gaps_s(run["stream"]), default=0.0) / max(alone_s, 1e-6))
    effect = median(shares)
    ctx.evidence("effect", 1 / max(effect, 1e-6))
    assert_that(
        effect < 0.7,
        f"a running stream stood still for {effect:.2f} of the time that the long prompt takes",
        expected="a fraction of it",
        actual=effect,
        guess="a prompt is read in one step while everybody waits (no chunked prefill)",
    )


@check(
    "TEC-3",
    "A batch costs what its tokens cost, not its longest prompt times its size (no padding)",
    answers=["vllm#10336", "mlx-lm#1736"],
    shows=_CONTROL,
    cost=0,
)
async def batches_are_ragged(ctx: CheckContext) -> None:
    size, tokens = 5, long_tokens(ctx) // 2
    effects = []
    for _ in range(ROUNDS):
        one = await _all_first_s(ctx, [tokens])
        mixed = await _all_first_s(ctx, [tokens] + [SHORT_TOKENS] * (size - 1))
        full = await _all_first_s(ctx, [tokens] * size)
        ctx.evidence("control", full / max(one, 1e-6))
        effects.append((mixed - one) / max(full - one, 1e-6))
    effect = median(effects)
    ctx.evidence("effect", 1 / max(effect, 0.01))
    assert_that(
        effect < 0.55,
        f"{size - 1} short prompts beside a long one cost {effect:.2f} of what long ones cost",
        expected="little",
        actual=effect,
        guess="every row is padded to the longest of the batch",
    )


async def _all_first_s(ctx: CheckContext, lengths: list[int]) -> float:
    """Seconds until each of these prompts, sent together, has its first token."""
    run = await ctx.run(*[fresh(ctx, f"r{i}", n, 2) for i, n in enumerate(lengths)])
    assert_complete(*run.answers)
    return max(answer.t_first_s or 0.0 for answer in run.answers)


@check(
    "TEC-4",
    "A slot that becomes free is filled at once, while the others of its batch go on",
    answers=["vllm#45414", "sglang-jax#1328", "optimum-neuron#470"],
    shows={"control": 1},
    cost=0,
)
async def slots_are_refilled(ctx: CheckContext) -> None:
    shorts, out = 4, 6
    first = await timed_alone(ctx, SHORT_TOKENS, out)
    one_s = (first.t_last_s or 0.0) - (first.t_sent_s or 0.0)
    long_answer = await timed_alone(ctx, SHORT_TOKENS, 192)
    lasts_s = (long_answer.t_last_s or 0.0) - (long_answer.t_sent_s or 0.0)
    ctx.evidence("control", lasts_s / max(2 * one_s, 1e-6))
    long = fresh(ctx, "long", SHORT_TOKENS, 192)
    chain = [after(fresh(ctx, "s0", SHORT_TOKENS, out), "long", 2)]
    for number in range(1, shorts):
        request = fresh(ctx, f"s{number}", SHORT_TOKENS, out)
        chain.append(after(request, f"s{number - 1}", out))
    run = await ctx.run(long, *chain)
    assert_complete(*run.answers)
    ended = run["long"].t_last_s or 0.0
    within = sum((run[r.key].t_last_s or 0.0) < ended for r in chain)
    ctx.evidence("effect", within)
    assert_that(
        within >= 1,
        f"{within} of {shorts} short requests were answered while the long answer was made",
        expected="several",
        actual=within,
        guess="a batch is refilled only when all of it has ended (static batching)",
    )


@check(
    "TEC-5",
    "A prompt that was just read is read faster the second time (prefix caching)",
    answers=["lmdeploy#3308", "vllm#37076"],
    shows=_CONTROL,
    cost=0,
)
async def prefixes_are_cached(ctx: CheckContext) -> None:
    await prefill_control(ctx)
    effects = []
    for _ in range(ROUNDS):
        request = fresh(ctx, "cold", long_tokens(ctx), 2)
        cold = await ctx.run(request)
        warm = await ctx.run(replace(request, key="warm"))
        assert_complete(*cold.answers, *warm.answers)
        effects.append(ttft_s(cold["cold"]) / max(ttft_s(warm["warm"]), 1e-6))
    effect = median(effects)
    ctx.evidence("effect", effect)
    if effect < 1.5:
        ctx.unsupported(f"no prefix caching shows: cold over warm is {effect:.2f}")


@check(
    "TEC-6",
    "Requests sent together are answered sooner than one after another (they share steps)",
    answers=["sendnn-inference#314", "sglang-jax#1328"],
    cost=0,
)
async def requests_are_batched(ctx: CheckContext) -> None:
    size, out = 8, 24
    effects = []
    for _ in range(ROUNDS):
        alone = await timed_alone(ctx, SHORT_TOKENS, out)
        one_s = (alone.t_last_s or 0.0) - (alone.t_sent_s or 0.0)
        run = await ctx.run(*[fresh(ctx, f"r{i}", SHORT_TOKENS, out) for i in range(size)])
        assert_complete(*run.answers)
        ctx.evidence_of_overlap(run)
        all_s = max(answer.t_last_s or 0.0 for answer in run.answers)
        effects.append(size * one_s / max(all_s, 1e-6))
    effect = median(effects)
    ctx.evidence("effect", effect)
    assert_that(
        effect > 1.15,
        f"{size} requests together are {effect:.2f} times as fast as one after another",
        expected="clearly more than 1",
        actual=effect,
        guess="requests are served one after another",
    )
