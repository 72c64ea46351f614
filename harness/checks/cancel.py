"""CAN: a client that hangs up costs nobody anything, whenever it does it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from harness.checks.assertions import assert_that
from harness.checks.capabilities import Capability
from harness.checks.context import CheckContext
from harness.checks.example import Run, after, hanging_up
from harness.checks.gauges import Gauge
from harness.checks.registry import check
from harness.checks.scheduling import settled_gauges
from harness.transcript import Ending
from workloads.workload import WorkloadRequest

_CUT = {"cancelled": 1}


def evidence_of_cuts(ctx: CheckContext, run: Run) -> None:
    """Record how many requests were really cut off before their end."""
    ctx.evidence("cancelled", sum(a.ending is Ending.CANCELLED for a in run.answers))


async def survivors(ctx: CheckContext, *cut: WorkloadRequest, least: int = 2, most: int = 4) -> Run:
    """Run the requests to be cut beside others, hold the others to their answers, retry the cut.

    The retry comes at once: the same prompt, by a client that stays.
    """
    others = ctx.draw_crowd(least=least, most=most, tokens=st.integers(2, 80), label="stays")
    run = await ctx.run(*others, *cut)
    evidence_of_cuts(ctx, run)
    await ctx.assert_as_alone(run)
    retries = [
        replace(r, key=f"retry-{r.key}", cancel_after_tokens=None, cancel_after_s=None, after=None)
        for r in cut
    ]
    await ctx.assert_as_alone(await ctx.run(*retries))
    return run


@check(
    "CAN-1",
    "A client that hangs up at once harms nobody, and its prompt can be sent again",
    answers=["sglang#35255", "sglang#2238", "FreeToken#222"],
    shows=_CUT,
)
async def at_once(ctx: CheckContext) -> None:
    crowd = ctx.draw_crowd(least=2, most=4, tokens=st.integers(2, 100), label="cut")
    await survivors(ctx, *[hanging_up(r, after_tokens=0) for r in crowd])


@check(
    "CAN-2",
    "A client that hangs up while its long prompt is being read harms nobody",
    answers=["sglang#38319", "vllm#41400", "TGI#2489", "sglang#23392"],
    shows=_CUT,
)
async def during_prefill(ctx: CheckContext) -> None:
    most = ctx.longest_prompt
    long = ctx.draw_request("cut", tokens=st.integers(most // 2, most), max_tokens=16)
    after_s = ctx.draw(st.sampled_from([0.005, 0.015, 0.03]), "after_s")
    await survivors(ctx, replace(long, cancel_after_s=after_s))


@check(
    "CAN-3",
    "A client that hangs up at its first token harms nobody",
    answers=["sglang#36475", "llama.cpp#11414", "vllm#41400"],
    shows=_CUT,
)
async def at_first_token(ctx: CheckContext) -> None:
    crowd = ctx.draw_crowd(least=1, most=4, max_tokens=24, label="cut")
    await survivors(ctx, *[hanging_up(r, after_tokens=1) for r in crowd])


@check(
    "CAN-4",
    "Clients that hang up in the middle of their answers harm nobody",
    answers=["sglang#1674", "llama.cpp#23493", "vllm#14326", "sglang#35255"],
    shows=_CUT,
    cost=1.5,
)
async def mid_stream(ctx: CheckContext) -> None:
    crowd = ctx.draw_crowd(least=2, most=6, max_tokens=24, label="cut")
    cuts = ctx.draw(st.lists(st.integers(2, 10), min_size=len(crowd), max_size=len(crowd)), "cuts")
    await survivors(ctx, *[hanging_up(r, after_tokens=n) for r, n in zip(crowd, cuts, strict=True)])


@check(
    "CAN-5",
    "A client that hangs up before its whole answer came harms nobody",
    answers=["FreeToken#222", "llama.cpp#11414", "sglang#36333"],
    shows=_CUT,
)
async def whole_answer(ctx: CheckContext) -> None:
    crowd = ctx.draw_crowd(least=1, most=3, max_tokens=48, label="cut")
    after_s = ctx.draw(st.sampled_from([0.01, 0.03, 0.06]), "after_s")
    await survivors(ctx, *[replace(r, stream=False, cancel_after_s=after_s) for r in crowd])


@check(
    "CAN-6",
    "A client that hangs up on several choices at once harms nobody",
    answers=["vllm#14326", "vllm#16863", "transformers#46117"],
    needs=[Capability.SAME_N],
    shows=_CUT,
)
async def several_choices(ctx: CheckContext) -> None:
    request = ctx.draw_request("cut", max_tokens=24, **ctx.capabilities.choices(3))
    cut = ctx.draw(st.integers(1, 9), "cut")
    others = ctx.draw_crowd(least=2, most=4, tokens=st.integers(2, 80), label="stays")
    run = await ctx.run(*others, hanging_up(request, after_tokens=cut))
    evidence_of_cuts(ctx, run)
    await ctx.assert_as_alone(run, *[o.key for o in others])
    single = replace(request, key="retry", params={**request.params, "n": 1})
    await ctx.assert_as_alone(await ctx.run(single))


@check(
    "CAN-7",
    "A prompt sent again the moment its first client hangs up gets its answer",
    answers=["llama.cpp#23493", "sglang#23392", "sglang#36475"],
    shows=_CUT,
)
async def retry_at_the_same_moment(ctx: CheckContext) -> None:
    request = ctx.draw_request("cut", max_tokens=24)
    cut = ctx.draw(st.integers(1, 6), "cut")
    retry = after(replace(request, key="retry"), "cut", cut)
    run = await ctx.run(hanging_up(request, after_tokens=cut), retry)
    evidence_of_cuts(ctx, run)
    await ctx.assert_as_alone(run)


@check(
    "CAN-8",
    "When clients have hung up, their requests stop running and their memory is free again",
    answers=["sglang#35255", "sglang#36333", "vllm#14326", "llama.cpp#11414", "FreeToken#222"],
    needs=[Capability.METRICS],
    shows=_CUT,
    cost=0.5,
)
async def gauges_return(ctx: CheckContext) -> None:
    before = await settled_gauges(ctx)
    out = _zombie_tokens(ctx)
    crowd = ctx.draw_crowd(
        least=2, most=4, tokens=st.integers(2, 60), max_tokens=out, label="cut", **ctx.lasting
    )
    several = ctx.capabilities.choices(2) if Capability.SAME_N in ctx.capabilities else {}
    shapes = [
        hanging_up(crowd[0], after_tokens=2),
        replace(crowd[1], key="whole", stream=False, cancel_after_s=0.03),
        hanging_up(replace(crowd[1], params={**crowd[1].params, **several}), after_tokens=3),
    ]
    run = await ctx.run(*shapes)
    evidence_of_cuts(ctx, run)
    await _assert_idle(ctx, before)


def _zombie_tokens(ctx: CheckContext) -> int:
    """An answer long enough that a server that goes on with it is still at it when we look."""
    limit = ctx.capabilities.context_limit or 2048
    return min(3500, limit - 100)


async def _assert_idle(ctx: CheckContext, before: dict[Gauge, float]) -> None:
    gauges = await settled_gauges(ctx)
    running, waiting = gauges.get(Gauge.RUNNING, 0), gauges.get(Gauge.WAITING, 0)
    assert_that(
        running == 0 and waiting == 0,
        f"{running:g} requests run and {waiting:g} wait though every client has hung up",
        expected=0,
        actual=running + waiting,
        guess="the server goes on with requests whose clients are gone",
    )
    used, idle = gauges.get(Gauge.CACHE_USE), before.get(Gauge.CACHE_USE)
    if used is not None and idle == 0:
        assert_that(used == 0, f"cache use is {used}, was 0 before", expected=0, actual=used)


@check(
    "CAN-9",
    "After many clients have hung up the server still serves twice what it serves at once",
    answers=["sglang#1674", "sglang#2238", "vllm#18411", "llama.cpp#23493"],
    shows=_CUT,
    cost=0.5,
)
async def capacity_remains(ctx: CheckContext) -> None:
    size = 2 * ctx.session.budget.crowd
    cut = ctx.draw_crowd(
        least=size, most=size, tokens=st.integers(2, 100), max_tokens=32, label="cut"
    )
    run = await ctx.run(*[hanging_up(r, after_tokens=i % 4) for i, r in enumerate(cut)])
    evidence_of_cuts(ctx, run)
    crowd = ctx.draw_crowd(
        least=size, most=size, tokens=st.integers(2, 60), max_tokens=st.integers(2, 8)
    )
    await ctx.assert_as_alone(await ctx.run(*crowd))
