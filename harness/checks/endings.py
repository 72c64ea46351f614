"""LEN: what ends an answer: the model itself, a stop token id, and the fields that postpone it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from harness.checks.assertions import assert_complete, assert_equal, assert_that
from harness.checks.capabilities import Capability
from harness.checks.context import CheckContext
from harness.checks.length import assert_lengths, completion_tokens
from harness.checks.registry import check
from harness.checks.stream import drawn_stop
from harness.transcript import RequestTranscript


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
    least = {"at": count, "longer": count + 3}
    postponed = [
        replace(
            request, key=key, params={**request.params, "min_tokens": n, "max_tokens": count + 6}
        )
        for key, n in least.items()
    ]
    run = await ctx.run(request, within, *postponed)
    await assert_lengths(ctx, [run["free"], run["within"]], [request, within])
    assert_complete(run["at"], run["longer"])
    # Servers differ in counting the ending token itself, but not from one answer to the next.
    ending = (completion_tokens(run["free"]) or 0) - count + 1
    for key, n in least.items():
        given = completion_tokens(run[key]) or 0
        assert_that(
            n + ending <= given <= count + 6,
            f"an answer with min_tokens {n} and max_tokens {count + 6} has {given} tokens",
            request_key=key,
            expected=[n + ending, count + 6],
            actual=given,
            guess="the ending token is let through one token early",
        )


@check(
    "LEN-12",
    "A stop string does not end an answer before min_tokens",
    answers=["vllm#21987"],
    needs=[Capability.MIN_TOKENS, Capability.USAGE],
    shows={"stops_postponed": 1},
)
async def stop_before_min_tokens(ctx: CheckContext) -> None:
    request, stop = await drawn_stop(ctx, "free")
    if stop is None:
        return
    run = await ctx.run(request)
    assert_complete(run["free"])
    count = completion_tokens(run["free"]) or 0
    text = run["free"].first.text
    if count < 4 or not 0 <= text.find(stop) < len(text) // 2:
        return
    ctx.evidence("stops_postponed", 1)
    params = {**request.params, "stop": [stop], "min_tokens": count - 1}
    run = await ctx.run(replace(request, key="postponed", params=params))
    assert_complete(run["postponed"])
    given = completion_tokens(run["postponed"]) or 0
    assert_that(
        given >= count - 1,
        f"an answer with min_tokens {count - 1} and a stop string has {given} tokens",
        request_key="postponed",
        expected=f"at least {count - 1}",
        actual=given,
        guess="min_tokens holds back the ending token, but not stop strings",
    )


@check(
    "LEN-11",
    "A stop token id ends the answer at its first occurrence, and no answer beside it",
    answers=["vllm#5849", "tenstorrent/vllm#349", "vllm#4589"],
    needs=[Capability.STOP_TOKEN_IDS, Capability.KNOWN_ANSWERS],
    shows={"stops_within_answer": 1},
)
async def stop_token_ids(ctx: CheckContext) -> None:
    request = await ctx.draw_lasting_request("free", 6, max_tokens=st.integers(8, 24))
    place = ctx.draw(st.integers(1, 12), "place of the stop token")
    ids = (await ctx.expect(request)).token_ids or ()
    if len(ids) < 4:
        return
    stop = ids[min(place, len(ids) - 3)]
    end = ids.index(stop)
    ctx.evidence("stops_within_answer", 1)
    stopped = replace(request, key="stopped", params={**request.params, "stop_token_ids": [stop]})
    run = await ctx.run_fairly(request, stopped, replace(stopped, key="whole", stream=False))
    for answer in (run["stopped"], run["whole"]):
        assert_complete(answer)
        _assert_ended_by(ctx, answer, ids[:end], stop)
    await ctx.assert_as_alone(run, "free")


def _assert_ended_by(
    ctx: CheckContext, answer: RequestTranscript, before: tuple[int, ...], stop: int
) -> None:
    """The answer is ``before``; servers differ in whether they show and count ``stop`` after it."""
    key = answer.key
    right = {ctx.text_of(before), ctx.text_of((*before, stop))}
    assert_that(
        answer.first.text in right,
        f"the text of {key} is {answer.first.text!r}, should end before or with token {stop}",
        request_key=key,
        expected=sorted(right),
        actual=answer.first.text,
    )
    assert_equal(f"the finish reasons of {key}", answer.first.finish_reasons, ["stop"], key=key)
    count = completion_tokens(answer)
    assert_that(
        count in (None, len(before), len(before) + 1),
        f"usage of {key} counts {count} output tokens, should be {len(before) + 1}",
        request_key=key,
        expected=len(before) + 1,
        actual=count,
    )
