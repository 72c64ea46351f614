"""STR: what is streamed adds up to what is answered whole, and stop strings cut cleanly."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from harness.checks.assertions import assert_complete, assert_equal, assert_that
from harness.checks.capabilities import Capability
from harness.checks.context import CheckContext
from harness.checks.registry import check
from workloads.workload import WorkloadRequest


def whole(request: WorkloadRequest, key: str) -> WorkloadRequest:
    """The same request, answered in one piece."""
    return replace(request, key=key, stream=False)


@check(
    "STR-1",
    "The streamed pieces together are the text of the answer that is not streamed",
    answers=["TensorRT-LLM#14312", "TensorRT-LLM#1414", "vllm#41691", "TensorRT-LLM#4923"],
)
async def pieces_are_the_whole(ctx: CheckContext) -> None:
    streamed = ctx.draw_request("streamed")
    run = await ctx.run_fairly(streamed, whole(streamed, "whole"))
    assert_complete(*run.answers)
    assert_equal(
        "the streamed text", run["streamed"].first.text, run["whole"].first.text, key="streamed"
    )
    await ctx.assert_as_alone(run)


@check(
    "STR-2",
    "The text is that of the token ids, in a stream and in one piece",
    answers=["TensorRT-LLM#9802", "mlx-vlm#1076", "djl-serving#2299"],
    needs=[Capability.TOKEN_IDS_OUT, Capability.KNOWN_ANSWERS],
)
async def text_is_that_of_the_ids(ctx: CheckContext) -> None:
    streamed = ctx.draw_request("streamed")
    run = await ctx.run_fairly(streamed, whole(streamed, "whole"))
    assert_complete(*run.answers)
    for answer in run.answers:
        ids = answer.first.token_ids or ()
        expected = ctx.text_of(ids)
        assert_equal(f"the text of {answer.key}", answer.first.text, expected, key=answer.key)


@check(
    "STR-3",
    "Every answer has one finish reason, in its last piece",
    answers=["mlc-llm#804", "tensorrtllm_backend#167", "vllm#14239"],
)
async def one_finish_reason(ctx: CheckContext) -> None:
    crowd = ctx.draw_crowd(least=2)
    run = await ctx.run_fairly(*crowd, whole(crowd[0], "whole"))
    assert_complete(*run.answers)
    for answer in run.answers:
        reasons = answer.first.finish_reasons
        assert_equal(
            f"the number of finish reasons of {answer.key}", len(reasons), 1, key=answer.key
        )


@check(
    "STR-4",
    "A stream ends with one terminator and tells its usage once",
    answers=["vllm#8625", "transformers#40479", "TGI#1254"],
)
async def one_terminator(ctx: CheckContext) -> None:
    crowd = ctx.draw_crowd(least=2)
    run = await ctx.run(*crowd)
    assert_complete(*run.answers)
    for answer in run.answers:
        assert_equal(f"the terminators of {answer.key}", answer.terminators, 1, key=answer.key)
        if Capability.USAGE in ctx.capabilities:
            final = _final_usages(answer.raw) or answer.usages_seen
            assert_that(
                final >= 1, f"{answer.key} tells no usage at its end", request_key=answer.key
            )


def _final_usages(raw: list[object]) -> int:
    """Chunks that carry usage and no choice, which is where the API puts the final one."""
    return sum(isinstance(d, dict) and bool(d.get("usage")) and not d.get("choices") for d in raw)


@check(
    "STR-5",
    "A stop string that spans tokens cuts the answer just before its first occurrence",
    answers=["vllm#3574", "TGI#1254", "mlx-knife#68", "vllm#57052"],
    needs=[Capability.STOP],
    cost=1.5,
)
async def stop_cuts_cleanly(ctx: CheckContext) -> None:
    request, stop = await drawn_stop(ctx, "stopped")
    if stop is None:
        return
    ctx.evidence("stops_within_answer", 1)
    stopped = replace(request, params={**request.params, "stop": [stop]})
    run = await ctx.run_fairly(stopped, whole(stopped, "whole"))
    assert_complete(*run.answers)
    full = (await ctx.expect(request)).text
    expected = full[: full.index(stop)]
    for answer in run.answers:
        text = answer.first.text
        assert_equal(f"the text of {answer.key} up to {stop!r}", text, expected, key=answer.key)
        assert_equal(
            f"the finish reason of {answer.key}",
            answer.first.finish_reasons,
            ["stop"],
            key=answer.key,
        )


async def drawn_stop(ctx: CheckContext, key: str) -> tuple[WorkloadRequest, str | None]:
    """A request, and two to four characters from the middle of its answer (None if too short)."""
    request = await ctx.draw_lasting_request(key, 12, max_tokens=st.integers(16, 24))
    start, length = ctx.draw(st.tuples(st.integers(2, 10), st.integers(2, 4)), f"{key}'s stop")
    text = (await ctx.expect(request)).text
    stop = text[start : start + length]
    return request, stop if len(stop) >= 2 else None


@check(
    "STR-6",
    "No piece of a stop string is streamed before it is known whether it will be whole",
    answers=["vllm#3574", "vllm#45636", "TGI#1254"],
    needs=[Capability.STOP],
)
async def near_stop_is_not_withheld(ctx: CheckContext) -> None:
    request, stop = await drawn_stop(ctx, "near")
    if stop is None:
        return
    near = stop + "~"
    stopped = replace(request, params={**request.params, "stop": [near]})
    run = await ctx.run_fairly(stopped, whole(stopped, "whole"))
    assert_complete(*run.answers)
    full = (await ctx.expect(request)).text
    for answer in run.answers:
        assert_equal(
            f"the text of {answer.key}, whose stop string {near!r} is never completed",
            answer.first.text,
            full,
            key=answer.key,
        )


@check(
    "STR-7",
    "Each request of a batch is cut by its own stop strings and nobody else's",
    answers=["vllm#1309", "omlx#1798", "tenstorrent/vllm#349"],
    needs=[Capability.STOP],
    shows={"interleaved_pairs": 1},
)
async def stops_of_their_own(ctx: CheckContext) -> None:
    request, stop = await drawn_stop(ctx, "stopped")
    twin = replace(request, key="unstopped")
    if stop is None:
        return
    stopped = replace(request, params={**request.params, "stop": [stop]})
    others = ctx.draw_crowd(least=1, most=4, label="other")
    run = await ctx.run(twin, stopped, *others)
    ctx.evidence_of_overlap(run)
    await ctx.assert_as_alone(run)


@check(
    "STR-8",
    "Of several stop strings the one that occurs first cuts",
    answers=["vllm#3574", "vllm#21987", "TGI#1254"],
    needs=[Capability.STOP],
)
async def earliest_stop_wins(ctx: CheckContext) -> None:
    request = await ctx.draw_lasting_request("several", 12, max_tokens=st.integers(16, 24))
    places = ctx.draw(st.lists(st.integers(2, 12), min_size=2, max_size=4), "places")
    full = (await ctx.expect(request)).text
    stops = sorted({s for p in places if len(s := full[p : p + 2]) == 2})
    if not stops:
        return
    stopped = replace(request, params={**request.params, "stop": stops})
    run = await ctx.run_fairly(stopped, whole(stopped, "whole"))
    assert_complete(*run.answers)
    expected = full[: min(full.index(s) for s in stops)]
    for answer in run.answers:
        assert_equal(f"the text of {answer.key}", answer.first.text, expected, key=answer.key)


@check(
    "STR-9",
    "No piece of a stream brings a broken character that the whole answer does not hold",
    answers=["llama.cpp#4036", "mlc-llm#804", "mlx-vlm#1076", "vllm#45636"],
)
async def characters_are_whole(ctx: CheckContext) -> None:
    streamed = ctx.draw_request("streamed")
    run = await ctx.run_fairly(streamed, whole(streamed, "whole"))
    assert_complete(*run.answers)
    entire = run["whole"].first.text
    pieces = run["streamed"].first.text
    assert_equal(
        "the number of U+FFFD in the stream",
        pieces.count("\ufffd"),
        entire.count("\ufffd"),
        key="streamed",
    )
    assert_equal("the streamed text", pieces, entire, key="streamed")


@check(
    "STR-10",
    "An answer of many tokens arrives in pieces while it is made, not at its end",
    answers=["transformers#39149", "vllm#3574"],
)
async def arrives_as_it_is_made(ctx: CheckContext) -> None:
    request = await ctx.draw_lasting_request("streamed", 8, max_tokens=st.integers(16, 24))
    run = await ctx.run(request)
    assert_complete(*run.answers)
    if len((await ctx.expect(request)).text) < 8:
        return
    pieces = len(run["streamed"].first.chunks)
    assert_that(
        pieces >= 3,
        f"the answer came in {pieces} pieces, should be several",
        request_key="streamed",
        expected="several pieces",
        actual=pieces,
    )
