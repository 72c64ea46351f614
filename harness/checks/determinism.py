"""DET: how far the same request gives the same answer, as a grade, and proof that it can differ.

Grade A: logprobs are bitwise equal under load; B: tokens are equal; C: tokens differ only at
near-ties; D: they differ otherwise.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from harness.checks.assertions import assert_complete, assert_equal, assert_that
from harness.checks.capabilities import Capability
from harness.checks.context import CheckContext
from harness.checks.registry import check
from harness.checks.scores import output_logprobs
from harness.transcript import RequestTranscript

_OVERLAP = {"interleaved_pairs": 1}


def fingerprint(answer: RequestTranscript) -> tuple[object, ...]:
    """All that a client can see of choice 0: text, ids, logprobs to the last bit."""
    return answer.first.text, answer.first.token_ids, tuple(output_logprobs(answer))


@check(
    "DET-1",
    "The same request alone gives the same answer every time",
    answers=["lmdeploy#3308", "TensorRT-LLM#2699", "vllm#36939"],
)
async def same_alone(ctx: CheckContext) -> None:
    request = ctx.draw_request("again")
    first = await ctx.run(request)
    assert_complete(*first.answers)
    for number in range(3):
        run = await ctx.run(replace(request, key=f"again{number}"))
        assert_complete(*run.answers)
        await ctx.assert_same_answer(first["again"], run[f"again{number}"])


@check(
    "DET-2",
    "Under load a request has the tokens that it has alone",
    answers=["vllm#39589", "vllm#51187", "vllm#39146"],
    shows=_OVERLAP,
)
async def same_tokens_under_load(ctx: CheckContext) -> None:
    crowd = ctx.draw_crowd(least=3)
    run = await ctx.run(*crowd)
    ctx.evidence_of_overlap(run)
    assert_complete(*run.answers)
    alone = await ctx.run(crowd[0])
    assert_complete(*alone.answers)
    await ctx.assert_same_answer(alone["r0"], run["r0"])


@check(
    "DET-3",
    "Under load the logprobs are those of the request alone, to the last bit or by rounding only",
    answers=["vllm#51187", "vllm#39589"],
    needs=[Capability.LOGPROBS],
    shows=_OVERLAP,
    cost=1.5,
)
async def bitwise_under_load(ctx: CheckContext) -> None:
    crowd = ctx.draw_crowd(least=3, most=8, logprobs=1)
    run = await ctx.run(*crowd)
    ctx.evidence_of_overlap(run)
    assert_complete(*run.answers)
    for request in crowd[:2]:
        alone = await ctx.run(request)
        assert_complete(*alone.answers)
        mine, right = run[request.key], alone[request.key]
        if fingerprint(mine) == fingerprint(right):
            ctx.evidence("bitwise_equal", 1)
            continue
        ctx.evidence("bitwise_different", 1)
        await ctx.assert_same_answer(right, mine)


@check(
    "DET-4",
    "Another prompt gives another answer: the comparison can fail",
    answers=["vllm#36939", "llama.cpp#22828"],
)
async def inverse_control(ctx: CheckContext) -> None:
    length, content = ctx.draw(st.tuples(st.integers(8, 40), st.integers(0, 999)), "prompts")
    texts = []
    for number in range(4):
        request = ctx.ask("r", ctx.prompt(length, f"{content}/{number}"), 16)
        run = await ctx.run(request)
        assert_complete(*run.answers)
        texts.append(run["r"].first.text)
    assert_that(
        len(set(texts)) > 1, "four different prompts got one answer", request_key="r",
        expected="different answers", actual=texts,
    )  # fmt: skip


@check(
    "DET-5",
    "The answer does not depend on whether it is streamed",
    answers=["llama.cpp#4036", "TensorRT-LLM#4923", "vllm#41691"],
)
async def same_whole(ctx: CheckContext) -> None:
    request = ctx.draw_request("streamed")
    streamed = await ctx.run(request)
    whole = await ctx.run(replace(request, key="whole", stream=False))
    assert_complete(*streamed.answers, *whole.answers)
    assert_equal(
        "the finish reason of whole",
        whole["whole"].first.finish_reasons,
        streamed["streamed"].first.finish_reasons,
        key="whole",
    )
    await ctx.assert_same_answer(streamed["streamed"], whole["whole"])
