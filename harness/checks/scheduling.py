"""SCH: when there is more work than room, everybody is served, in time, and rightly."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from hypothesis import strategies as st

from harness.checks.assertions import assert_complete, assert_refused_at_once, assert_that
from harness.checks.capabilities import Capability
from harness.checks.context import CheckContext
from harness.checks.draws import contents
from harness.checks.example import Run, after, renamed
from harness.checks.gauges import Gauge
from harness.checks.length import assert_lengths
from harness.checks.registry import check
from harness.transcript import RequestTranscript
from workloads.workload import WorkloadRequest

_PREEMPTED = {"preemptions": 1}
SETTLE_S = 10.0


def heavy_crowd(ctx: CheckContext, label: str = "heavy", least: int = 5) -> list[WorkloadRequest]:
    """Long prompts with long answers, as many at once as the budget allows."""
    most = ctx.longest_prompt
    out = 2 * ctx.session.budget.output_tokens
    return ctx.draw_crowd(
        least=least,
        tokens=st.integers(most // 3, most),
        max_tokens=st.integers(out // 2, out),
        label=label,
        **ctx.lasting,
    )


def pressing_crowd(ctx: CheckContext) -> list[WorkloadRequest]:
    """A heavy crowd that overfills the smallest cache that could serve the stated context."""
    smallest = ctx.longest_prompt // 3 + ctx.session.budget.output_tokens
    return heavy_crowd(ctx, least=ctx.enough_to_fill(smallest, least=5))


async def run_counting_preemptions(ctx: CheckContext, *requests: WorkloadRequest) -> Run:
    """Run, and record by how much the server's preemption counter moved."""
    before = (await ctx.gauges()).get(Gauge.PREEMPTIONS, 0)
    run = await ctx.run(*requests)
    ctx.evidence("preemptions", (await ctx.gauges()).get(Gauge.PREEMPTIONS, 0) - before)
    return run


async def settled_gauges(ctx: CheckContext) -> dict[Gauge, float]:
    """The gauges once nothing runs or waits, or as they are after `SETTLE_S` seconds."""
    for _ in range(int(SETTLE_S / 0.05)):
        gauges = await ctx.gauges()
        if gauges.get(Gauge.RUNNING, 0) == 0 and gauges.get(Gauge.WAITING, 0) == 0:
            break
        await asyncio.sleep(0.05)
    return gauges


@check(
    "SCH-1",
    "Requests that are preempted and resumed get the answers that they get alone",
    answers=["vllm-gaudi#524", "FastDeploy#3080", "vllm-ascend#11334", "nano-vllm#144"],
    needs=[Capability.METRICS],
    shows=_PREEMPTED,
)
async def preempted_answers(ctx: CheckContext) -> None:
    run = await run_counting_preemptions(ctx, *pressing_crowd(ctx))
    ctx.evidence_of_overlap(run)
    await ctx.assert_as_alone(run)


@check(
    "SCH-2",
    "Preempted requests lose no token and deliver none twice",
    answers=["vllm#16832", "vllm-gaudi#524", "vllm#5349", "tenstorrent/vllm#326"],
    needs=[Capability.METRICS],
    shows=_PREEMPTED,
    cost=0.5,
)
async def preempted_lengths(ctx: CheckContext) -> None:
    crowd = pressing_crowd(ctx)
    run = await run_counting_preemptions(ctx, *crowd)
    await assert_lengths(ctx, run.answers, crowd)


@check(
    "SCH-3",
    "Preempted requests that share a cached prefix get the answers that they get alone",
    answers=["nano-vllm#211", "nano-vllm#233", "sglang#29471", "vllm#37076"],
    needs=[Capability.METRICS],
    shows=_PREEMPTED,
    cost=0.5,
)
async def preempted_sharers(ctx: CheckContext) -> None:
    half = ctx.longest_prompt // 2
    content = ctx.draw(contents(), "content")
    out = 2 * ctx.session.budget.output_tokens
    least = ctx.enough_to_fill(half // 2 + out, least=5)
    tails = ctx.draw(
        st.lists(
            st.integers(half // 2, half),
            min_size=least,
            max_size=max(least, ctx.session.budget.crowd),
        ),
        "tails",
    )
    crowd = [
        ctx.ask(f"r{i}", ctx.extended(half, content, tail, f"r{i}"), out, **ctx.lasting)
        for i, tail in enumerate(tails)
    ]
    await ctx.assert_as_alone(await run_counting_preemptions(ctx, *crowd))


@check(
    "SCH-4",
    "A request that arrives while a long answer is being made starts before that answer ends",
    answers=["vllm#25538", "sglang-jax#1328", "vllm#45414"],
    shows={"late_arrivals": 1},
)
async def in_flight_batching(ctx: CheckContext) -> None:
    short = ctx.draw_request("short", tokens=st.integers(4, 40), max_tokens=8)
    alone = await ctx.run(short)
    assert_complete(*alone.answers)
    first_token_s = (alone["short"].t_first_s or 0) - (alone["short"].t_sent_s or 0)
    long = await _long_answer(ctx, 20 * first_token_s)
    run = await ctx.run(long, after(renamed(short, "late"), "long", 2))
    assert_complete(*run.answers)
    began, ended = run["late"].t_first_s or 0.0, run["long"].t_last_s or 0.0
    if ended - (run["late"].t_sent_s or 0) < 5 * first_token_s:
        return  # it came too late to be served in time
    ctx.evidence("late_arrivals", 1)
    assert_that(
        began < ended,
        "the late request got its first token only after the long answer had ended",
        request_key="late",
        expected=f"before {ended:.3f} s",
        actual=began,
        guess="a batch is finished before another one is begun (static batching)",
    )


async def _long_answer(ctx: CheckContext, lasts_s: float) -> WorkloadRequest:
    """A request whose answer alone takes that long, or as long as the context allows."""
    content = ctx.draw(contents(), "long")
    most = min(2048, (ctx.capabilities.context_limit or 2048) - 64)
    tokens = 64
    while True:
        request = ctx.ask("long", ctx.prompt(12, content), tokens, stream=True, **ctx.lasting)
        answer = (await ctx.run(request))["long"]
        took_s = (answer.t_last_s or 0) - (answer.t_first_s or 0)
        if took_s >= lasts_s or 2 * tokens > most:
            return request
        tokens *= 2


@check(
    "SCH-5",
    "A burst of several times what runs at once is answered to the last request",
    answers=["vllm#39734", "llama.cpp#16448", "vllm#18411", "sglang#36855"],
    shows={"requests_at_once": 8},
    cost=0.5,
)
async def burst(ctx: CheckContext) -> None:
    size = 3 * ctx.session.budget.crowd
    crowd = ctx.draw_crowd(
        least=size, most=size, tokens=st.integers(2, 60), max_tokens=st.integers(2, 8)
    )
    ctx.evidence("requests_at_once", len(crowd))
    await ctx.assert_as_alone(await ctx.run(*crowd))


@check(
    "SCH-6",
    "A prompt that can never fit is refused at once, and the small request behind it is served",
    answers=["vllm#39734", "vllm#765", "vllm#276", "mlx-lm#1129"],
    needs=[Capability.CONTEXT_LIMIT, Capability.KNOWN_ANSWERS],
    cost=0.5,
)
async def impossible_prompt(ctx: CheckContext) -> None:
    limit = ctx.capabilities.context_limit or 0
    extra, content = ctx.draw(st.tuples(st.integers(1, 200), contents()), "extra")
    huge = ctx.ask("huge", ctx.prompt(limit + extra, content), 4)
    small = ctx.draw_crowd(least=2, most=4, tokens=st.integers(2, 40), label="small")
    run = await ctx.run(huge, *small)
    assert_refused_at_once(run["huge"])
    await ctx.assert_as_alone(run, *[s.key for s in small])


@check(
    "SCH-7",
    "A long prompt gets its turn while short requests keep coming",
    answers=["vllm#55818", "vllm#45387", "sglang-jax#1328", "vllm#25538"],
    cost=0.5,
)
async def no_starvation(ctx: CheckContext) -> None:
    most = ctx.longest_prompt
    long = ctx.draw_request("long", tokens=st.integers(most * 2 // 3, most), max_tokens=4)
    streams, rounds, content = 4, 8, ctx.draw(contents(), "content")
    shorts: list[WorkloadRequest] = []
    for stream in range(streams):
        for number in range(rounds):
            prompt = ctx.prompt(6 + stream, f"{content}/{stream}/{number}")
            request = ctx.ask(f"s{stream}-{number}", prompt, 6)
            shorts.append(after(request, f"s{stream}-{number - 1}", 5) if number else request)
    run = await ctx.run(*shorts, after(long, "s0-0", 2))
    assert_complete(*run.answers)
    began = run["long"].t_first_s or float("inf")
    last = max(run[f"s{s}-{rounds - 1}"].t_first_s or 0 for s in range(streams))
    assert_that(
        began < last,
        "the long prompt got its first token only after all the short requests behind it",
        request_key="long",
        expected=f"before {last:.3f} s",
        actual=began,
        guess="newcomers are always served first (starvation)",
    )
    await ctx.assert_as_alone(run)


@check(
    "SCH-8",
    "After a load has ended nothing runs, nothing waits, and no more cache is in use than before",
    answers=["vllm#18411", "sglang#1674", "vllm#45414", "sglang#2238"],
    needs=[Capability.METRICS],
    cost=0.5,
)
async def gauges_return(ctx: CheckContext) -> None:
    before = await settled_gauges(ctx)
    await ctx.assert_as_alone(await ctx.run(*heavy_crowd(ctx, least=3)))
    gauges = await settled_gauges(ctx)
    for gauge in (Gauge.RUNNING, Gauge.WAITING):
        assert_that(
            gauges.get(gauge, 0) == 0,
            f"{gauge.value} is {gauges.get(gauge)} after the load, should be 0",
            expected=0,
            actual=gauges.get(gauge),
        )
    used, idle = gauges.get(Gauge.CACHE_USE), before.get(Gauge.CACHE_USE)
    if used is not None and idle is not None and idle == 0:
        assert_that(
            used == 0, f"cache use is {used} after the load, was 0 before", expected=0, actual=used
        )


@check(
    "SCH-9",
    "Requests with several choices each are all answered when there is little room",
    answers=["transformers#46117", "vllm#16863", "vllm#14326"],
    needs=[Capability.SAME_N],
    cost=0.5,
)
async def several_choices_under_pressure(ctx: CheckContext) -> None:
    several = ctx.capabilities.choices(3)
    crowd = ctx.draw_crowd(least=3, most=5, tokens=st.integers(20, 120), max_tokens=10, **several)
    run = await ctx.run(*crowd)
    assert_complete(*run.answers)
    for request in crowd:
        await ctx.assert_choices(request, run[request.key], 3)


@check(
    "SCH-10",
    "The same load again and again is answered every time: nothing is lost from round to round",
    answers=["vllm#18411", "llama.cpp#16448", "sglang#36855", "vllm#45387"],
    cost=0.25,
)
async def rounds_of_load(ctx: CheckContext) -> None:
    crowd = heavy_crowd(ctx, least=3)
    for number in range(4):
        again = [replace(r, key=f"{r.key}-{number}") for r in crowd]
        await ctx.assert_as_alone(await ctx.run(*again))


@check(
    "SCH-11",
    "Nobody who waits is overtaken by most of those who come later",
    answers=["vllm#45414", "vllm#45387", "vllm#55818"],
    shows={"served_meanwhile": 2},
    cost=0.5,
)
async def no_overtaking(ctx: CheckContext) -> None:
    """More long prompts than can be read at once, all of one length, so that no fair order of
    service has a reason to prefer the later ones; each stream sends its next as one is answered.
    """
    streams, rounds = ctx.session.budget.crowd, 4
    tokens, content = ctx.longest_prompt, ctx.draw(contents(), "content")

    def one(key: str) -> WorkloadRequest:
        return ctx.ask(key, ctx.prompt(tokens, f"{content}/{key}"), 1)

    alone = await ctx.run(one("alone"))
    assert_complete(*alone.answers)
    crowd = []
    for stream in range(streams):
        for number in range(rounds):
            request = one(f"s{stream}-{number}")
            crowd.append(after(request, f"s{stream}-{number - 1}") if number else request)
    run = await ctx.run(*crowd)
    await ctx.assert_as_alone(run)
    margin_s = ((alone["alone"].t_first_s or 0) - (alone["alone"].t_sent_s or 0)) / 4
    ctx.evidence("served_meanwhile", max(_meanwhile(run, a, margin_s) for a in run.answers))
    for answer in run.answers:
        later = [a for a in run.answers if (a.t_sent_s or 0) > (answer.t_sent_s or 0)]
        ahead = sum((a.t_first_s or 0) < (answer.t_first_s or 0) for a in later)
        assert_that(
            2 * ahead <= max(len(later), 2 * streams),
            f"{ahead} of the {len(later)} requests that came after {answer.key} were served first",
            request_key=answer.key,
            expected=f"at most {max(len(later), 2 * streams) // 2}",
            actual=ahead,
            guess="newcomers are always served first (starvation)",
        )


def _meanwhile(run: Run, answer: RequestTranscript, margin_s: float) -> int:
    """How many others were given their first token while this one waited for its own."""
    began_s, ended_s = (answer.t_sent_s or 0) + margin_s, (answer.t_first_s or 0) - margin_s
    return sum(began_s < (other.t_first_s or 0) < ended_s for other in run.answers)
