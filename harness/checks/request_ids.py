"""API: the ids of requests and answers, the client's own and the server's."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from harness.checks.assertions import assert_complete, assert_distinct, assert_refused, assert_that
from harness.checks.context import CheckContext
from harness.checks.registry import check
from harness.transcript import Ending, RequestTranscript
from workloads.workload import WorkloadRequest

_TWIN: Final = "isobatch-twin"


@check(
    "API-1",
    "Every response has an id of its own",
    answers=["vllm#10583", "vllm#15041", "transformers#45943"],
)
async def ids_are_unique(ctx: CheckContext) -> None:
    crowd = ctx.draw_crowd(least=4, max_tokens=4)
    first, second = await ctx.run(*crowd), await ctx.run(*crowd)
    assert_complete(*first.answers, *second.answers)
    ids = [a.response_id for a in (*first.answers, *second.answers)]
    assert_that(None not in ids, "a response has no id", actual=ids)
    assert_distinct("the response ids", ids)


@check(
    "API-11",
    "Requests that come with the same client id are kept apart",
    answers=["vllm#10583", "vllm#27987", "vllm#15041"],
)
async def duplicate_client_ids(ctx: CheckContext) -> None:
    crowd = ctx.draw_crowd(least=3, most=6)
    twins = [replace(r, params={**r.params, "request_id": _TWIN}) for r in crowd]
    if not await _kept_apart(ctx, twins):
        ctx.unsupported("the server takes no request_id")


@check(
    "API-13",
    "Requests that come with the same X-Request-Id header are kept apart",
    answers=["vllm#10583", "vllm#27987", "vllm#15041"],
)
async def duplicate_request_headers(ctx: CheckContext) -> None:
    crowd = ctx.draw_crowd(least=3, most=6)
    twins = [replace(r, headers={"X-Request-Id": _TWIN}) for r in crowd]
    answers = await _kept_apart(ctx, twins)
    if not any(_TWIN in (answer.response_id or "") for answer in answers):
        ctx.unsupported("no response id shows that the server takes X-Request-Id")


async def _kept_apart(ctx: CheckContext, twins: list[WorkloadRequest]) -> list[RequestTranscript]:
    """Judge requests of one name, each as alone or refused. The answers that were given."""
    run = await ctx.run(*twins)
    ctx.evidence_of_overlap(run)
    answered = [r.key for r in twins if run[r.key].ending is not Ending.REFUSED]
    for request in twins:
        if request.key not in answered:
            assert_refused(run[request.key])
    if answered:
        await ctx.assert_as_alone(run, *answered)
    return [run[key] for key in answered]
