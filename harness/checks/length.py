"""LEN: how long an answer is, why it ended, and how the server counts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from harness.checks.assertions import assert_complete, assert_equal, assert_refused, assert_that
from harness.checks.capabilities import Capability
from harness.checks.context import CheckContext
from harness.checks.draws import contents
from harness.checks.registry import check
from harness.oracles.oracle import Expected
from harness.transcript import RequestTranscript
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
    "LEN-5",
    "An answer ends where the model ends it, with finish reason stop",
    answers=["optimum-neuron#470", "TGI#1254", "vllm#16832"],
    needs=[Capability.NATURAL_ENDINGS],
    shows={"natural_endings": 1},
)
async def natural_ending(ctx: CheckContext) -> None:
    crowd = ctx.draw_crowd(least=4, max_tokens=st.integers(16, 96))
    run = await ctx.run(*crowd)
    endings = [(await ctx.expect(r)).finish_reason for r in crowd]
    ctx.evidence("natural_endings", endings.count("stop"))
    await assert_lengths(ctx, run.answers, crowd)
    await ctx.assert_as_alone(run)


@check(
    "LEN-6",
    "A model's ending that falls on the last allowed token is told as stop, one later as length",
    answers=["optimum-neuron#470", "tensorrtllm_backend#167", "TensorRT-LLM#12358"],
    needs=[Capability.NATURAL_ENDINGS],
    shows={"endings_at_the_limit": 1},
)
async def ending_at_the_limit(ctx: CheckContext) -> None:
    request = ctx.draw_request("free", tokens=st.integers(2, 60), max_tokens=160)
    expected = await ctx.expect(request)
    if expected.finish_reason != "stop" or expected.token_ids is None:
        return
    count = len(expected.token_ids)
    ctx.evidence("endings_at_the_limit", 1)
    limits = {"before": count - 1, "at": count, "past": count + 1}
    trio = [
        replace(request, key=key, params={**request.params, "max_tokens": n})
        for key, n in limits.items()
        if n > 0
    ]
    run = await ctx.run(*trio)
    await assert_lengths(ctx, run.answers, trio)


@check(
    "LEN-7",
    "With ignore_eos an answer goes on to max_tokens",
    answers=["vllm#4589", "tenstorrent/vllm#349", "TensorRT-LLM#12166"],
    needs=[Capability.NATURAL_ENDINGS, Capability.IGNORE_EOS],
    shows={"endings_ignored": 1},
)
async def ignore_eos(ctx: CheckContext) -> None:
    crowd = ctx.draw_crowd(least=3, tokens=st.integers(2, 60), max_tokens=st.integers(40, 80))
    ignoring = [replace(r, params={**r.params, "ignore_eos": True}) for r in crowd]
    endings = [(await ctx.expect(r)).finish_reason for r in crowd]
    ctx.evidence("endings_ignored", endings.count("stop"))
    mixed = [r if i % 3 == 2 else ignoring[i] for i, r in enumerate(crowd)]
    run = await ctx.run(*mixed)
    await assert_lengths(ctx, run.answers, mixed)


@check(
    "LEN-8",
    "No answer ends before min_tokens, and min_tokens takes no token past its reach",
    answers=["vllm#46243", "vllm#5849", "vllm#21987", "TensorRT-LLM#12358"],
    needs=[Capability.NATURAL_ENDINGS, Capability.MIN_TOKENS, Capability.USAGE],
    shows={"endings_postponed": 1},
)
async def min_tokens(ctx: CheckContext) -> None:
    request = ctx.draw_request("free", tokens=st.integers(2, 60), max_tokens=120)
    expected = await ctx.expect(request)
    if expected.finish_reason != "stop" or expected.token_ids is None:
        return
    count = len(expected.token_ids)
    ctx.evidence("endings_postponed", 1)
    within = replace(request, key="within", params={**request.params, "min_tokens": count - 1})
    longer = replace(
        request,
        key="longer",
        params={**request.params, "min_tokens": count + 3, "max_tokens": count + 6},
    )
    run = await ctx.run(within, longer)
    await assert_lengths(ctx, [run["within"]], [replace(request, key="within")])
    assert_complete(run["longer"])
    given = completion_tokens(run["longer"]) or 0
    assert_that(
        count + 3 <= given <= count + 6,
        f"an answer with min_tokens {count + 3} and max_tokens {count + 6} has {given} tokens",
        request_key="longer",
        expected=[count + 3, count + 6],
        actual=given,
    )


@check(
    "LEN-9",
    "A prompt that leaves room for one token gets it; one that leaves none is refused at once",
    answers=["vllm#23683", "vllm#765", "llama.cpp#23652", "vllm#276"],
    needs=[Capability.CONTEXT_LIMIT, Capability.KNOWN_ANSWERS],
    cost=0.25,
)
async def context_limit(ctx: CheckContext) -> None:
    limit = ctx.capabilities.context_limit or 0
    content = ctx.draw(contents(), "content")
    neighbours = ctx.draw_crowd(least=2, most=3, tokens=st.integers(2, 40), label="neighbour")
    fits = ctx.ask("fits", ctx.prompt(limit - 1, content), 1)
    over = ctx.ask("over", ctx.prompt(limit + 1, content), 1)
    run = await ctx.run(*neighbours, fits, over)
    assert_refused(run["over"])
    await ctx.assert_as_alone(run, "fits", *[n.key for n in neighbours])


@check(
    "LEN-10",
    "Usage of a request with several choices counts the tokens of all of them",
    answers=["vllm#8625", "vllm#16863", "vllm#14326"],
    needs=[Capability.N, Capability.USAGE],
)
async def usage_sums_choices(ctx: CheckContext) -> None:
    request = ctx.draw_request("several", n=3)
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
