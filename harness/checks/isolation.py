"""ISO: what one request says, or was, never shows in the answer to another."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from harness.checks.assertions import assert_that
from harness.checks.capabilities import Capability
from harness.checks.context import CheckContext
from harness.checks.draws import contents
from harness.checks.example import after, hanging_up
from harness.checks.registry import check
from harness.transcript import Ending
from workloads.workload import WorkloadRequest

_OVERLAP = {"interleaved_pairs": 1}


@check(
    "ISO-1",
    "Changing what a neighbour says, but not its shape, changes nobody else's answer",
    answers=["vllm#39146", "mlx-lm#965", "vllm#13408", "sglang#23392"],
    shows=_OVERLAP,
)
async def neighbour_swap(ctx: CheckContext) -> None:
    mine = ctx.draw_request("mine")
    length, out = ctx.draw(
        st.tuples(st.integers(2, min(200, ctx.longest_prompt)), st.integers(8, 16)), "neighbour"
    )
    contents_seen = ctx.draw(
        st.lists(contents(), min_size=2, max_size=2, unique=True), "its contents"
    )
    runs = []
    for content in contents_seen:
        neighbour = ctx.ask("neighbour", ctx.prompt(length, f"neighbour/{content}"), out)
        run = await ctx.run(mine, neighbour)
        ctx.evidence_of_overlap(run)
        await ctx.assert_as_alone(run)
        runs.append(run)
    await ctx.assert_same_answer(runs[0]["mine"], runs[1]["mine"])


@check(
    "ISO-2",
    "Nobody receives the answer to somebody else's prompt",
    answers=["vllm#10583", "transformers#45943", "TensorRT-LLM#8813", "vllm#6023", "vllm#56009"],
    shows=_OVERLAP,
    cost=1.5,
)
async def canaries(ctx: CheckContext) -> None:
    tokens = ctx.draw(st.integers(12, 60), "tokens")
    crowd = ctx.draw_crowd(least=4, tokens=tokens, max_tokens=16)
    answers = {r.key: (await ctx.expect(r)).text for r in crowd}
    run = await ctx.run(*crowd)
    ctx.evidence_of_overlap(run)
    owners: dict[str, list[str]] = {}
    for key, text in answers.items():
        owners.setdefault(text, []).append(key)
    for request in crowd:
        given = run[request.key].first.text
        others = [k for k in owners.get(given, []) if k != request.key]
        if others and given != answers[request.key]:
            assert_that(
                False,
                f"request {request.key} received the answer of {others[0]}",
                request_key=request.key,
                expected=answers[request.key],
                actual=given,
                guess=f"this is the answer to request {others[0]}",
            )
    await ctx.assert_as_alone(run)


@check(
    "ISO-3",
    "Short requests answer right after long ones have filled the cache and gone",
    answers=["vllm#53856", "vllm#641", "vllm#38719", "mistral.rs#1026", "llama.cpp#22828"],
    shows={"poison_tokens": 64},
)
async def poisoned_pool(ctx: CheckContext) -> None:
    most = ctx.longest_prompt
    poison = ctx.draw_crowd(
        least=2, most=4, tokens=st.integers(most // 2, most), max_tokens=4, label="poison"
    )
    small = ctx.draw_crowd(least=3, tokens=st.integers(2, 36), label="small")
    first = await ctx.run(*poison)
    ctx.evidence("poison_tokens", sum(u.prompt_tokens for a in first.answers if (u := a.usage)))
    if Capability.USAGE not in ctx.capabilities:
        ctx.evidence("poison_tokens", len(poison) * most // 2)
    await ctx.assert_as_alone(first)
    await ctx.assert_as_alone(await ctx.run(*small))


@check(
    "ISO-4",
    "Every length modulo a page answers right in memory that was used before",
    answers=["vllm#43990", "vllm#36939", "vllm#43810", "vllm#55766"],
    cost=0.5,
)
async def every_residue(ctx: CheckContext) -> None:
    page = min(ctx.page_sizes)
    start, content = ctx.draw(st.tuples(st.integers(0, page - 1), contents()), "start")
    step = max(1, page // 6)
    lengths = [page + (start + i * step) % page + 1 for i in range(6)]
    crowd = [ctx.ask(f"r{i}", ctx.prompt(n, f"{content}/{i}"), 8) for i, n in enumerate(lengths)]
    await ctx.assert_as_alone(await ctx.run(*crowd))


@check(
    "ISO-5",
    "Requests cut off by their clients leave nothing behind in later answers",
    answers=["vllm#41400", "sglang#36475", "sglang#23392", "llama.cpp#23493"],
)
async def remains_of_the_cancelled(ctx: CheckContext) -> None:
    poison = ctx.draw_crowd(least=2, most=4, tokens=st.integers(30, 200), label="cut")
    cuts = ctx.draw(st.lists(st.integers(0, 3), min_size=len(poison), max_size=len(poison)), "cuts")
    cut = [hanging_up(r, after_tokens=n) for r, n in zip(poison, cuts, strict=True)]
    await ctx.assert_as_alone(await ctx.run(*cut))
    await ctx.assert_as_alone(await ctx.run(*ctx.draw_crowd(least=2, tokens=st.integers(2, 60))))


@check(
    "ISO-6",
    "A request that the server refuses changes nobody's answer",
    answers=["llama.cpp#23652", "vllm#765", "omlx#1798", "vllm#23683"],
    shows=_OVERLAP | {"refused": 1},
)
async def refused_neighbour(ctx: CheckContext) -> None:
    crowd = ctx.draw_crowd(least=3, max_tokens=st.integers(10, 20))
    run = await ctx.run(*crowd, *[after(bad, "r0", 2) for bad in refusable(ctx)])
    ctx.evidence_of_overlap(run)
    refused = [a for a in run.answers if a.ending is Ending.REFUSED]
    ctx.evidence("refused", len(refused))
    await ctx.assert_as_alone(run, *[r.key for r in crowd])


def refusable(ctx: CheckContext) -> list[WorkloadRequest]:
    """Requests that most servers refuse, each for a reason of its own. Their clients soon go."""
    plain = hanging_up(ctx.ask("bad", ctx.prompt(6, "bad"), 4), after_tokens=4)
    wrong = [{"temperature": "hot"}, {"max_tokens": "ten"}, {"model": "isobatch-no-such-model"}]
    rows = [
        replace(plain, key=f"bad{i}", params={**plain.params, **fields})
        for i, fields in enumerate(wrong)
    ]
    if plain.prompt_ids is not None:
        rows.append(replace(plain, key="bad id", prompt_ids=(*plain.prompt_ids, 2**31)))
    return rows


@check(
    "ISO-7",
    "Prompts that share their beginning and part ways keep their own answers",
    answers=["MinivLLM#98", "vllm-mlx#385", "vllm#42490"],
    shows=_OVERLAP,
)
async def common_beginnings(ctx: CheckContext) -> None:
    shared, content = ctx.draw(
        st.tuples(st.integers(2, min(140, ctx.longest_prompt - 20)), contents()), "shared"
    )
    tails = ctx.draw(
        st.lists(st.tuples(st.integers(1, 18), contents()), min_size=2, max_size=5), "tails"
    )
    crowd = [
        ctx.ask(f"r{i}", ctx.extended(shared, content, tail, f"{i}/{c}"), 12)
        for i, (tail, c) in enumerate(tails)
    ]
    run = await ctx.run(*crowd)
    ctx.evidence_of_overlap(run)
    await ctx.assert_as_alone(run)


@check(
    "ISO-8",
    "A long series of requests one after another does not wear the server out",
    answers=["llama.cpp#16448", "llama.cpp#17316", "TGI#2871"],
    cost=0,
)
async def long_series(ctx: CheckContext) -> None:
    count = 4 * ctx.session.budget.crowd
    content = ctx.draw(contents(), "content")
    for i in range(count):
        tokens = 2 + (7 * i) % 40
        request = ctx.ask(f"r{i}", ctx.prompt(tokens, f"{content}/{i}"), 4)
        await ctx.assert_as_alone(await ctx.run(request))
