"""API: the small print of the protocol, and what bad input does to a server (nothing)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from hypothesis import strategies as st

from harness.checks.assertions import (
    assert_complete,
    assert_refused,
    assert_that,
)
from harness.checks.capabilities import Capability
from harness.checks.context import CheckContext
from harness.checks.raw_http import get_json, post_bytes
from harness.checks.registry import check
from harness.client.plain_call import PlainAnswer
from harness.transcript import Ending, RequestTranscript
from workloads.workload import WorkloadRequest

_RAW = (Capability.RAW_HTTP,)
ANSWER_S: Final = 20.0
_ENOUGH_TOKENS: Final = 32

_WRONG_TYPES: Final[tuple[Mapping[str, Any], ...]] = (
    {"max_tokens": "ten"},
    {"max_tokens": [1]},
    {"temperature": "hot"},
    {"temperature": {}},
    {"top_p": []},
    {"n": "two"},
    {"stop": 7},
    {"stop": {"a": 1}},
    {"stream_options": "yes"},
    {"logit_bias": [1, 2]},
    {"logit_bias": {"x": "y"}},
    {"seed": "seven"},
    {"logprobs": "all"},
    {"prompt": {"text": "hi"}},
    {"prompt": 12},
)
_OUT_OF_RANGE: Final[tuple[Mapping[str, Any], ...]] = (
    {"max_tokens": -1},
    {"max_tokens": -(2**40)},
    {"temperature": -1},
    {"temperature": 1e30},
    {"top_p": -0.5},
    {"top_p": 7},
    {"n": -3},
    {"n": 10**9},
    {"presence_penalty": 1e20},
    {"logprobs": 10**9},
    {"seed": 2**200},
    {"logit_bias": {"999999999": 1}},
    {"logit_bias": {"1": 1e300}},
)
_IDS_OUTSIDE: Final = (-1, -(2**31), 2**31, 10**9, 2**63)


def _bad(ctx: CheckContext, key: str, choices: tuple[Mapping[str, Any], ...]) -> WorkloadRequest:
    """A request with one drawn mistake."""
    which = ctx.draw(st.integers(0, len(choices) - 1), key)
    request = ctx.ask(key, ctx.prompt(6, key), 4)
    # Where a server takes a huge or negative limit for "no limit", the client has seen enough.
    return replace(
        request, params={**request.params, **choices[which]}, cancel_after_tokens=_ENOUGH_TOKENS
    )


_SETTLED: Final = (Ending.REFUSED, Ending.COMPLETE, Ending.CANCELLED)


def assert_answered_soon(answer: RequestTranscript) -> None:
    """The server said something within `ANSWER_S` seconds, and did not break."""
    took_s = (answer.t_end_s or 0) - (answer.t_sent_s or 0)
    assert_that(
        answer.ending in _SETTLED and took_s < ANSWER_S,
        f"request {answer.key} ended in {answer.ending.value} after {took_s:.1f} s: {answer.error}",
        request_key=answer.key,
        expected="4xx, or an answer",
        actual=answer.ending.value,
    )


@check(
    "API-2",
    "A request for n choices gets all n, each whole, streamed or not",
    answers=["vllm#16863", "vllm#11898", "TensorRT-LLM#9802"],
    needs=[Capability.SAME_N],
)
async def all_choices(ctx: CheckContext) -> None:
    request = ctx.draw_request("several", **ctx.capabilities.choices(3))
    others = ctx.draw_crowd(least=1, most=3, label="other")
    run = await ctx.run(request, *others, replace(request, key="whole", stream=False))
    assert_complete(*run.answers)
    for key in ("several", "whole"):
        await ctx.assert_choices(request, run[key], 3)
    await ctx.assert_as_alone(run, *[o.key for o in others])


@check(
    "API-3",
    "A field of the wrong type is refused with 4xx and an error message",
    answers=["vllm#10583", "llama.cpp#17316", "omlx#1798"],
    cost=3,
)
async def wrong_types(ctx: CheckContext) -> None:
    run = await ctx.run(_bad(ctx, "bad", _WRONG_TYPES))
    assert_refused(run["bad"])
    assert_that(
        bool(run["bad"].error), "the refusal says nothing", request_key="bad",
        expected="an error message", actual=run["bad"].error,
    )  # fmt: skip


@check(
    "API-4",
    "A value out of range is refused or answered in bounded time, never an error of the server",
    answers=["vllm#23683", "llama.cpp#22828", "vllm#765"],
    cost=3,
)
async def out_of_range(ctx: CheckContext) -> None:
    run = await ctx.run(_bad(ctx, "bad", _OUT_OF_RANGE))
    assert_answered_soon(run["bad"])


@check(
    "API-5",
    "Token ids outside the vocabulary are refused",
    answers=["vllm#46899", "vllm#42490", "llama.cpp#17316"],
    needs=[Capability.TOKEN_ID_PROMPTS],
)
async def unknown_tokens(ctx: CheckContext) -> None:
    which, place = ctx.draw(
        st.tuples(st.integers(0, len(_IDS_OUTSIDE) - 1), st.integers(1, 5)), "id"
    )
    good = ctx.prompt(6, "good").ids or ()
    ids = (*good[:place], _IDS_OUTSIDE[which], *good[place:])
    request = ctx.ask("outside", ctx.prompt(6, "good"), 4)
    run = await ctx.run(replace(request, prompt_ids=ids, prompt_text=None))
    assert_refused(run["outside"])


@check(
    "API-6",
    "An empty prompt is answered or refused, and breaks nothing",
    answers=["nano-vllm#144", "vllm#23683", "llama.cpp#22828"],
    cost=0,
)
async def empty_prompt(ctx: CheckContext) -> None:
    request = ctx.ask("empty", ctx.prompt(6, "x"), 4)
    shapes = [replace(request, prompt_ids=None, prompt_text="")]
    if Capability.TOKEN_ID_PROMPTS in ctx.capabilities:
        shapes.append(replace(request, key="no ids", prompt_ids=(), prompt_text=None))
    run = await ctx.run(*shapes)
    for answer in run.answers:
        assert_answered_soon(answer)
    await ctx.assert_as_alone(await ctx.run(ctx.draw_request("after")))


@check(
    "API-7",
    "An unknown model is refused with 4xx",
    answers=["llama.cpp#17316", "vllm#10583"],
    cost=0,
)
async def unknown_model(ctx: CheckContext) -> None:
    run = await ctx.run(ctx.ask("unknown", ctx.prompt(6, "x"), 4, model="isobatch-no-such-model"))
    assert_refused(run["unknown"])


_MALFORMED: Final = (
    b"",
    b"{",
    b'{"model": ',
    b"[]",
    b"null",
    b'"text"',
    b"\x00\x01\x02",
    b'{"prompt": "\xff\xfe", "max_tokens": 2}',
    b'{"prompt": "a", "max_tokens": 2,}',
    b'{"prompt": "a" "max_tokens": 2}',
    b'{"prompt": NaN}',
    b"[" * 5000,
)


@check(
    "API-8",
    "A body that is no JSON object, or no UTF-8, is refused with 4xx",
    answers=["llama.cpp#17316", "vllm#10583"],
    needs=_RAW,
    cost=3,
)
async def malformed_bodies(ctx: CheckContext) -> None:
    body = _MALFORMED[ctx.draw(st.integers(0, len(_MALFORMED) - 1), "body")]
    answer = await post_bytes(ctx, "/v1/completions", body)
    _assert_client_error(answer, body)


def _assert_client_error(answer: PlainAnswer, body: bytes) -> None:
    status = answer.status
    assert_that(
        status is not None and 400 <= status < 500,
        f"the body {body[:40]!r} got HTTP status {status}, should be 4xx ({answer.error})",
        expected="4xx",
        actual=status,
    )


@check(
    "API-9",
    "A prompt far beyond any limit is refused, or the connection closed, in bounded time",
    answers=["vllm#765", "vllm#276", "llama.cpp#23652"],
    needs=_RAW,
    cost=0,
)
async def oversized_body(ctx: CheckContext) -> None:
    model = getattr(ctx.session.target, "model", "") or ""
    head = b'{"model": "' + model.encode() + b'", "max_tokens": 1, "prompt": "'
    answer = await post_bytes(ctx, "/v1/completions", head + b"a " * (4 << 20) + b'"}')
    status = answer.status
    assert_that(
        status is None or 400 <= status < 500,
        f"a body of 8 MiB got HTTP status {status}",
        expected="4xx, or a closed connection",
        actual=status,
    )
    await ctx.assert_as_alone(await ctx.run(ctx.draw_request("after")))


@check(
    "API-10",
    "Bad requests among good ones change no good answer",
    answers=["llama.cpp#23652", "omlx#1798", "TGI#1643", "vllm#23683"],
    shows={"interleaved_pairs": 1},
)
async def good_among_bad(ctx: CheckContext) -> None:
    good = ctx.draw_crowd(least=3, max_tokens=st.integers(10, 20), label="good")
    bad = [_bad(ctx, f"bad{i}", (*_WRONG_TYPES, *_OUT_OF_RANGE)) for i in range(4)]
    run = await ctx.run(*good[:2], *bad, *good[2:])
    ctx.evidence_of_overlap(run)
    await ctx.assert_as_alone(run, *[g.key for g in good])


@check(
    "API-12",
    "The list of models names the model that answers",
    answers=["mlx-lm#1129", "llama.cpp#17316"],
    needs=_RAW,
    cost=0,
)
async def models_are_listed(ctx: CheckContext) -> None:
    document = await get_json(ctx, "/v1/models")
    rows = document.get("data") if isinstance(document, dict) else None
    assert_that(isinstance(rows, list), "/v1/models gives no list", actual=document)
    names = [row.get("id") for row in rows or () if isinstance(row, dict)]
    model = getattr(ctx.session.target, "model", None)
    assert_that(model in names, f"{model!r} is not listed", expected=model, actual=names)
    run = await ctx.run(ctx.draw_request("asked", max_tokens=2))
    assert_complete(*run.answers)
