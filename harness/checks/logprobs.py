"""LOG: logprobs belong to the tokens beside them, and say the same however they are asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from hypothesis import strategies as st

from harness.checks.assertions import assert_complete, assert_equal, assert_that
from harness.checks.capabilities import Capability
from harness.checks.context import CheckContext
from harness.checks.draws import edges
from harness.checks.evidence import cached_tokens
from harness.checks.registry import check
from harness.checks.scores import (
    assert_same_scores,
    output_logprobs,
    prompt_scores,
    top_logprobs,
)
from harness.oracles.oracle import Prompt
from harness.transcript import RequestTranscript
from workloads.workload import WorkloadRequest

_LOGPROBS = (Capability.LOGPROBS,)
_PROMPT = (Capability.PROMPT_LOGPROBS, Capability.TOKEN_ID_PROMPTS)
_SUM_SLACK: Final = 1e-3


def scored(ctx: CheckContext, key: str, prompt: Prompt) -> WorkloadRequest:
    """A request for the logprobs of its prompt."""
    return ctx.ask(key, prompt, 1, stream=False, prompt_logprobs=1)


@check(
    "LOG-1",
    "Each output token comes with one logprob, in a stream and in one piece",
    answers=["sglang#2825", "vllm#14239", "djl-serving#2299"],
    needs=[*_LOGPROBS, Capability.USAGE],
)
async def one_logprob_a_token(ctx: CheckContext) -> None:
    crowd = ctx.draw_crowd(least=2, logprobs=2)
    run = await ctx.run(*crowd, replace(crowd[0], key="whole", stream=False))
    assert_complete(*run.answers)
    for answer in run.answers:
        counted = answer.usage.completion_tokens if answer.usage else 0
        given = len(output_logprobs(answer))
        ended = "stop" in answer.first.finish_reasons
        assert_that(
            given == counted or (ended and given == counted - 1),
            f"{answer.key} has {given} logprobs for {counted} output tokens",
            request_key=answer.key,
            expected=counted,
            actual=given,
        )


@check(
    "LOG-2",
    "The token chosen at temperature 0 is the best of its own top logprobs, in a batch too",
    answers=["sglang#1795", "sglang#2825", "vllm#29216", "vllm#51187"],
    needs=_LOGPROBS,
    shows={"interleaved_pairs": 1},
    cost=1.5,
)
async def chosen_is_best(ctx: CheckContext) -> None:
    run = await ctx.run(*ctx.draw_crowd(least=3, logprobs=2))
    ctx.evidence_of_overlap(run)
    assert_complete(*run.answers)
    for answer in run.answers:
        chosen, tops = output_logprobs(answer), top_logprobs(answer)
        for place, (mine, top) in enumerate(zip(chosen, tops, strict=False)):
            if top:
                best = max(top.values())
                assert_that(
                    ctx.close(mine, best),
                    f"the logprob of token {place} of {answer.key} is {mine:.3f}, the best is "
                    f"{best:.3f}",
                    request_key=answer.key,
                    expected=best,
                    actual=mine,
                    first_difference=place,
                )
        _assert_text_of_the_best(answer, tops)


def _assert_text_of_the_best(
    answer: RequestTranscript, tops: Sequence[Mapping[str, float]]
) -> None:
    """The best tokens, one after another, are the answer's text (where all names are texts)."""
    names = [max(top, key=lambda name: top[name]) for top in tops if top]
    text = answer.first.text
    if len(names) == len(tops) and len("".join(names)) == len(text):
        assert_equal(
            f"the best tokens of {answer.key}, joined", "".join(names), text, key=answer.key
        )


@check(
    "LOG-3",
    "A token's logprob is the one that it gets when prompt and answer are scored as a prompt",
    answers=["vllm#4139", "vllm#29216", "sglang#2403", "sglang#2158"],
    needs=[*_LOGPROBS, *_PROMPT, Capability.TOKEN_IDS_OUT],
)
async def rescored(ctx: CheckContext) -> None:
    request = ctx.draw_request("answered", logprobs=1)
    run = await ctx.run(request)
    assert_complete(*run.answers)
    ids, given = run["answered"].first.token_ids, output_logprobs(run["answered"])
    prompt = request.prompt_ids
    if ids is None or prompt is None or len(ids) != len(given):
        return
    whole = Prompt((*prompt, *ids), None)
    rescored_run = await ctx.run(scored(ctx, "rescored", whole))
    assert_complete(*rescored_run.answers)
    scores = prompt_scores(rescored_run["rescored"])
    for place, (token, mine) in enumerate(zip(ids, given, strict=True)):
        entry = scores[len(prompt) + place] if len(prompt) + place < len(scores) else None
        assert_that(
            entry is not None and token in entry and ctx.close(entry[token], mine),
            f"the logprob of output token {place} is {mine:.3f}, rescored it is "
            f"{entry.get(token) if entry else None}",
            request_key="rescored",
            expected=mine,
            actual=entry.get(token) if entry else None,
            first_difference=place,
        )


@check(
    "LOG-4",
    "Every prompt token but the first has a logprob, and the first has none",
    answers=["vllm#5846", "strands-sglang#34", "vllm#3251"],
    needs=_PROMPT,
)
async def first_has_none(ctx: CheckContext) -> None:
    length = ctx.draw(st.sampled_from(edges(ctx.page_sizes, low=2, high=ctx.longest_prompt)), "n")
    prompt = ctx.prompt(length, "scored")
    for key in ("cold", "warm"):
        run = await ctx.run(scored(ctx, key, prompt))
        assert_complete(*run.answers)
        scores = prompt_scores(run[key])
        assert_equal(f"the number of prompt logprobs of {key}", len(scores), length, key=key)
        missing = [i for i, s in enumerate(scores) if s is None]
        assert_equal(f"the prompt tokens of {key} without a logprob", missing, [0], key=key)
        for place, (token, entry) in enumerate(zip(prompt.ids or (), scores, strict=True)):
            if entry is not None:
                assert_that(
                    token in entry,
                    f"prompt logprob {place} of {key} is not about token {token}",
                    request_key=key,
                    expected=token,
                    actual=sorted(entry),
                    first_difference=place,
                )


@check(
    "LOG-5",
    "Logprobs are those of a distribution: none above 0, and the best together at most 1",
    answers=["sglang#2825", "vllm#51187", "sglang#2158"],
    needs=_LOGPROBS,
)
async def a_distribution(ctx: CheckContext) -> None:
    run = await ctx.run(*ctx.draw_crowd(least=2, logprobs=5))
    assert_complete(*run.answers)
    for answer in run.answers:
        for place, top in enumerate(top_logprobs(answer)):
            total = sum(math.exp(p) for p in top.values())
            assert_that(
                total <= 1 + _SUM_SLACK and all(p <= _SUM_SLACK for p in top.values()),
                f"the best tokens at {place} of {answer.key} have probability {total:.4f} in all",
                request_key=answer.key,
                expected="at most 1",
                actual=total,
                first_difference=place,
            )


@check(
    "LOG-6",
    "Logprobs in a batch are those of the request alone",
    answers=["vllm#51187", "sglang#1795", "sglang#2403"],
    needs=_LOGPROBS,
    shows={"interleaved_pairs": 1},
)
async def batched_as_alone(ctx: CheckContext) -> None:
    crowd = ctx.draw_crowd(least=2, most=6, logprobs=2)
    together = await ctx.run(*crowd)
    ctx.evidence_of_overlap(together)
    for request in crowd:
        alone = await ctx.run(request)
        assert_complete(alone[request.key], together[request.key])
        pair = [top_logprobs(run[request.key]) for run in (alone, together)]
        if alone[request.key].first.text != together[request.key].first.text:
            await ctx.assert_as_alone(together, request.key)
            continue
        for place, (right, mine) in enumerate(zip(*pair, strict=False)):
            for name in right.keys() & mine.keys():
                assert_that(
                    ctx.close(right[name], mine[name]),
                    f"logprob of {name!r} at {place} of {request.key} is {mine[name]:.3f}, alone "
                    f"{right[name]:.3f}",
                    request_key=request.key,
                    expected=right[name],
                    actual=mine[name],
                    first_difference=place,
                )


@check(
    "LOG-7",
    "The logprobs of a cached prompt are those of the prompt when it was new",
    answers=["vllm#3251", "vllm#13105", "strands-sglang#34"],
    needs=_PROMPT,
)
async def warm_as_cold(ctx: CheckContext) -> None:
    lengths = st.sampled_from(edges(ctx.page_sizes, low=18, high=ctx.longest_prompt))
    length, content = ctx.draw(st.tuples(lengths, st.integers(0, 999)), "prompt")
    prompt = ctx.prompt(length, content)
    cold = await ctx.run(scored(ctx, "cold", prompt))
    await ctx.run(ctx.ask("between", prompt, 2))
    warm = await ctx.run(scored(ctx, "warm", prompt))
    assert_complete(*cold.answers, *warm.answers)
    ctx.evidence("cached_tokens", cached_tokens(warm.transcript))
    assert_same_scores(
        "warm",
        prompt_scores(warm["warm"]),
        prompt_scores(cold["cold"]),
        prompt.ids or (),
        ctx.close,
    )


@check(
    "LOG-8",
    "The likeliest token at every place of a long prompt is the one that the model gives there",
    answers=["vllm#4139", "vllm#4055", "vllm#5846", "sglang#2158", "vllm#53520"],
    needs=[*_PROMPT, Capability.KNOWN_ANSWERS],
)
async def likeliest_everywhere(ctx: CheckContext) -> None:
    most = ctx.longest_prompt
    length, content = ctx.draw(
        st.tuples(st.integers(most // 2, most), st.integers(0, 999)), "prompt"
    )
    prompt = ctx.prompt(length, content)
    neighbours = ctx.draw_crowd(least=1, most=3, tokens=st.integers(2, 40))
    run = await ctx.run(scored(ctx, "scored", prompt), *neighbours)
    assert_complete(*run.answers)
    scores = prompt_scores(run["scored"])
    likeliest = [max(s, key=lambda token: s[token]) if s else -1 for s in scores][1:]
    wrong = await ctx.session.oracle.wrong_followers(prompt.ids or (), likeliest)
    if wrong is None:
        ctx.unsupported("the oracle does not know the likeliest token at every place")
    assert_that(
        not wrong and len(likeliest) == length - 1,
        f"after prompt token {wrong[0] if wrong else len(likeliest)} the likeliest token is not "
        "the one that the model gives",
        request_key="scored",
        expected=[],
        actual=wrong,
        first_difference=wrong[0] if wrong else None,
    )


@check(
    "LOG-9",
    "Tokens that come later in a prompt change no logprob before them (causality)",
    answers=["transformers#41184", "vllm#10336", "vllm#4139"],
    needs=_PROMPT,
)
async def causality(ctx: CheckContext) -> None:
    shared, content = ctx.draw(
        st.tuples(st.integers(10, min(150, ctx.longest_prompt - 40)), st.integers(0, 999)), "shared"
    )
    prompts = {
        "short": ctx.extended(shared, content, 3, "short"),
        "long": ctx.extended(shared, content, 30, "long"),
    }
    run = await ctx.run(*[scored(ctx, key, prompt) for key, prompt in prompts.items()])
    assert_complete(*run.answers)
    short, long = (prompt_scores(run[key])[:shared] for key in ("short", "long"))
    assert_same_scores("long", long, short, (prompts["short"].ids or ())[:shared], ctx.close)


@check(
    "LOG-10",
    "Only the requests that ask for logprobs get them, and asking changes nobody's answer",
    answers=["vllm#1309", "sglang#2825", "vllm#14301"],
    needs=_LOGPROBS,
    shows={"interleaved_pairs": 1},
)
async def only_who_asks(ctx: CheckContext) -> None:
    crowd = ctx.draw_crowd(least=4)
    mixed = [
        replace(r, params={**r.params, "logprobs": 1 + i % 3 if i % 2 else None})
        for i, r in enumerate(crowd)
    ]
    run = await ctx.run(*mixed)
    ctx.evidence_of_overlap(run)
    await ctx.assert_as_alone(run)
    for index, request in enumerate(mixed):
        wanted = bool(index % 2)
        given = bool(output_logprobs(run[request.key]))
        assert_that(
            given == wanted or not run[request.key].first.text,
            f"{request.key} {'got' if given else 'did not get'} logprobs",
            request_key=request.key,
            expected=wanted,
            actual=given,
        )
