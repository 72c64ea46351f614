"""LEN: how long an answer is, why it ended, and how the server counts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from harness.checks.assertions import (
    assert_complete,
    assert_equal,
    assert_refused_at_once,
    assert_that,
)
from harness.checks.capabilities import Capability
from harness.checks.context import CheckContext
from harness.checks.draws import contents
from harness.checks.registry import check
from harness.oracles.oracle import Expected
from harness.transcript import Ending, RequestTranscript
from workloads.workload import WorkloadRequest

_OVERLAP = {"interleaved_pairs": 1}


def completion_tokens(answer: RequestTranscript) -> int | None:
    """The server's own count of output tokens."""
    return answer.usage.completion_tokens if answer.usage else None


def finish_reason(answer: RequestTranscript) -> str | None:
    """The first finish reason of choice 0."""
    return next(iter(answer.first.finish_reasons), None)


def allowed_counts(expected: Expected) -> set[int]:
    """How many tokens the answer may be said to have: servers differ in counting a final EOS."""
    count = len(expected.token_ids or ())
    return {count, count - 1} if expected.finish_reason == "stop" else {count}


async def assert_lengths(
    ctx: CheckContext, answers: Sequence[RequestTranscript], requests: Sequence[WorkloadRequest]
) -> None:
    """Each answer has the expected finish reason and number of tokens, by the server's count."""
    assert_complete(*answers)
    for request, answer in zip(requests, answers, strict=True):
        if not await ctx.is_exact(request, answer):
            continue  # an answer that parted at a tie has a length of its own
        key, expected = answer.key, await ctx.expect(request)
        assert_equal(
            f"the finish reason of {key}", finish_reason(answer), expected.finish_reason, key=key
        )
        count = completion_tokens(answer)
        if count is not None and expected.token_ids is not None:
            allowed = allowed_counts(expected)
            assert_that(
                count in allowed,
                f"usage of {key} counts {count} output tokens, should be {max(allowed)}",
                request_key=key,
                expected=max(allowed),
                actual=count,
            )


@check(
    "LEN-1",
    "An answer that nothing ends before has exactly max_tokens tokens",
    answers=["sendnn-inference#314", "optimum-neuron#470", "vllm#16832"],
    cost=1.5,
)
async def max_tokens_is_exact(ctx: CheckContext) -> None:
    crowd = ctx.draw_crowd(least=2, max_tokens=st.sampled_from([1, 2, 3, 8, 16, 17]))
    run = await ctx.run(*crowd)
    await assert_lengths(ctx, run.answers, crowd)


@check(
    "LEN-2",
    "A request for one token gets one, beside requests for many",
    answers=["optimum-neuron#470", "nano-vllm#144", "vllm#7380"],
    shows=_OVERLAP,
)
async def one_token(ctx: CheckContext) -> None:
    long = ctx.draw_crowd(least=2, most=4, max_tokens=st.integers(12, 20), label="long")
    one = ctx.draw_crowd(least=1, most=4, max_tokens=1, label="one")
    run = await ctx.run(*long, *one)
    ctx.evidence_of_overlap(run)
    await assert_lengths(ctx, run.answers, [*long, *one])
    await ctx.assert_as_alone(run)


@check(
    "LEN-3",
    "Usage counts the prompt's tokens, all of them and nobody else's",
    answers=["vllm#8625", "TensorRT-LLM#12358", "sglang#36475"],
    needs=[Capability.USAGE, Capability.KNOWN_ANSWERS],
)
async def prompt_is_counted(ctx: CheckContext) -> None:
    crowd = ctx.draw_crowd(least=2, max_tokens=4)
    run = await ctx.run(*crowd)
    assert_complete(*run.answers)
    for request, answer in zip(crowd, run.answers, strict=True):
        usage = answer.usage
        counted = usage.prompt_tokens if usage else None
        expected = (await ctx.expect(request)).prompt_tokens
        assert_equal(f"prompt_tokens of {answer.key}", counted, expected, key=answer.key)
        cached = usage.cached_tokens if usage else None
        if cached is not None and counted is not None:
            assert_that(
                0 <= cached < counted or counted == 0,
                f"cached_tokens of {answer.key} is {cached} of {counted}",
                request_key=answer.key,
                expected=f"less than {counted}",
                actual=cached,
            )


@check(
    "LEN-4",
    "Usage counts as many output tokens as ids came",
    answers=["vllm#8625", "tensorrtllm_backend#167", "sglang#2825"],
    needs=[Capability.USAGE, Capability.TOKEN_IDS_OUT],
)
async def usage_is_the_ids(ctx: CheckContext) -> None:
    crowd = ctx.draw_crowd(least=2)
    run = await ctx.run(*crowd, replace(crowd[0], key="whole", stream=False))
    assert_complete(*run.answers)
    for answer in run.answers:
        ids, counted = answer.first.token_ids, completion_tokens(answer)
        if ids is not None:
            ended = finish_reason(answer) == "stop"
            allowed = {len(ids), len(ids) + 1} if ended else {len(ids)}
            assert_that(
                counted in allowed,
                f"usage of {answer.key} counts {counted} output tokens, {len(ids)} ids came",
                request_key=answer.key,
                expected=len(ids),
                actual=counted,
            )


@check(
    "LEN-9",
    "A prompt that leaves room for one token gets it; one that leaves none is refused at once",
    answers=["vllm#23683", "vllm#765", "llama.cpp#23652", "vllm#276"],
    needs=[Capability.CONTEXT_LIMIT, Capability.KNOWN_ANSWERS],
    shows={"contexts_filled": 1},
    cost=0.25,
)
async def context_limit(ctx: CheckContext) -> None:
    limit = ctx.capabilities.context_limit or 0
    content = ctx.draw(contents(), "content")
    neighbours = ctx.draw_crowd(least=2, most=3, tokens=st.integers(2, 40), label="neighbour")
    fits = ctx.ask("fits", ctx.prompt(limit - 1, content), 1)
    over = ctx.ask("over", ctx.prompt(limit + 1, content), 1)
    run = await ctx.run(*neighbours, fits, over)
    assert_refused_at_once(run["over"])
    await ctx.assert_as_alone(run, *[n.key for n in neighbours])
    if run["fits"].ending is not Ending.REFUSED:
        ctx.evidence("contexts_filled", 1)
        await ctx.assert_as_alone(run, "fits")
        return
    assert_refused_at_once(run["fits"])
    await _assert_less_room_than_stated(ctx, limit, content)


async def _assert_less_room_than_stated(ctx: CheckContext, limit: int, content: int) -> None:
    """A context that is refused when full may be larger than the cache, which is no defect.

    Then a prompt of one token less has no room either. If it has, the limit is miscounted. The
    check itself stays without evidence, for the boundary that it is about was never reached.
    """
    shorter = ctx.ask("shorter", ctx.prompt(limit - 2, content), 1)
    run = await ctx.run(shorter)
    assert_that(
        run["shorter"].ending is Ending.REFUSED,
        f"a prompt of {limit - 1} tokens and 1 token more is refused, one of {limit - 2} and 1 is "
        f"not: the context of {limit} tokens that the server states cannot be filled",
        request_key="shorter",
        expected="both served",
        actual="the longer refused",
        guess="a limit is off by one",
    )


@check(
    "LEN-10",
    "Usage of a request with several choices counts the tokens of all of them",
    answers=["vllm#8625", "vllm#16863", "vllm#14326"],
    needs=[Capability.SAME_N, Capability.USAGE],
)
async def usage_sums_choices(ctx: CheckContext) -> None:
    request = ctx.draw_request("several", **ctx.capabilities.choices(3))
    run = await ctx.run_fairly(request, replace(request, key="whole", stream=False))
    assert_complete(*run.answers)
    expected = await ctx.expect(replace(request, params={**request.params, "n": 1}))
    if expected.token_ids is None:
        return
    allowed = {3 * count for count in allowed_counts(expected)}
    for answer in run.answers:
        assert_equal(
            f"the choices of {answer.key}", sorted(answer.choices), [0, 1, 2], key=answer.key
        )
        assert_that(
            completion_tokens(answer) in allowed,
            f"usage of {answer.key} counts {completion_tokens(answer)} output tokens for 3 choices",
            request_key=answer.key,
            expected=max(allowed),
            actual=completion_tokens(answer),
        )
