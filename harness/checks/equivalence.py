"""EQV: a request in a batch gets the answer that it gets alone, however the batch comes about."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from harness.checks.capabilities import Capability
from harness.checks.context import CheckContext
from harness.checks.draws import edges
from harness.checks.example import after, at
from harness.checks.registry import check

_OVERLAP = {"interleaved_pairs": 1}


@check(
    "EQV-1",
    "Requests of different lengths, sent together, each get the answer they get alone",
    answers=["vllm#39589", "TensorRT-LLM#8813", "CTranslate2#1318", "turboderp/exllama#101"],
    shows=_OVERLAP,
    cost=2,
)
async def ragged_batch(ctx: CheckContext) -> None:
    run = await ctx.run(*ctx.draw_crowd(least=2))
    ctx.evidence_of_overlap(run)
    await ctx.assert_as_alone(run)


@check(
    "EQV-2",
    "Requests that join at different moments of a running batch get the answer they get alone",
    answers=["optimum-neuron#470", "sglang#2158", "tenstorrent/vllm#395", "vllm#46899"],
    shows=_OVERLAP,
)
async def staggered_arrivals(ctx: CheckContext) -> None:
    crowd = ctx.draw_crowd(least=3)
    waits = ctx.draw(
        st.lists(st.integers(1, 6), min_size=len(crowd) - 1, max_size=len(crowd) - 1), "waits"
    )
    joined = [crowd[0]]
    for request, wait in zip(crowd[1:], waits, strict=True):
        joined.append(after(request, joined[-1].key, wait))
    run = await ctx.run(*joined)
    ctx.evidence_of_overlap(run)
    await ctx.assert_as_alone(run)


@check(
    "EQV-3",
    "The order in which requests are submitted changes no answer",
    answers=["vllm#5639", "sarathi-serve#18", "vllm#17524"],
    shows=_OVERLAP,
)
async def any_order(ctx: CheckContext) -> None:
    crowd = ctx.draw_crowd(least=2)
    order = ctx.draw(st.permutations(range(len(crowd))), "order")
    forward = await ctx.run(*crowd)
    shuffled = await ctx.run(*[crowd[i] for i in order])
    for run in (forward, shuffled):
        ctx.evidence_of_overlap(run)
        await ctx.assert_as_alone(run)


@check(
    "EQV-4",
    "A request that outlives its neighbours gets the answer it gets alone",
    answers=["maclocal-api#140", "mlx-lm#1129", "vllm#11898"],
    shows=_OVERLAP,
)
async def finishing_neighbours(ctx: CheckContext) -> None:
    most = ctx.session.budget.output_tokens
    short = ctx.draw_crowd(least=2, max_tokens=st.integers(1, 6), label="short")
    long = ctx.draw_request("long", max_tokens=st.integers(most - 4, most))
    run = await ctx.run(long, *short)
    ctx.evidence_of_overlap(run)
    await ctx.assert_as_alone(run)


@check(
    "EQV-5",
    "Prompts one token short of, equal to and one token past a page or chunk answer as alone",
    answers=["vllm#7380", "vllm#36580", "sglang#25091", "sglang-jax#20", "nano-vllm#218"],
    shows=_OVERLAP,
    cost=1.5,
)
async def boundary_lengths(ctx: CheckContext) -> None:
    sizes = edges(ctx.page_sizes, low=2, high=ctx.longest_prompt)
    run = await ctx.run(*ctx.draw_crowd(least=4, tokens=st.sampled_from(sizes)))
    ctx.evidence_of_overlap(run)
    await ctx.assert_as_alone(run)


@check(
    "EQV-6",
    "A long prompt that arrives while others are being answered changes none of them",
    answers=["vllm#37076", "vllm#26042", "vllm#39146"],
    shows=_OVERLAP,
)
async def long_neighbour_mid_decode(ctx: CheckContext) -> None:
    most = ctx.longest_prompt
    running = ctx.draw_crowd(least=2, most=5, tokens=st.integers(2, 40), label="running")
    late = ctx.draw_request("late", tokens=st.integers(most * 2 // 3, most))
    wait = ctx.draw(st.integers(1, 6), "wait")
    run = await ctx.run(*running, after(late, running[0].key, wait))
    ctx.evidence_of_overlap(run)
    await ctx.assert_as_alone(run)


@check(
    "EQV-7",
    "A short request beside one many times longer gets the answer it gets alone",
    answers=["vllm#10336", "mlx-lm#1129", "vllm#39589"],
    shows=_OVERLAP,
)
async def very_unequal_lengths(ctx: CheckContext) -> None:
    most = ctx.longest_prompt
    long = ctx.draw_request("long", tokens=st.integers(most * 4 // 5, most))
    short = ctx.draw_crowd(least=1, most=3, tokens=st.integers(2, 6), label="short")
    run = await ctx.run(long, *short, *[replace(s, key=f"late-{s.key}") for s in short])
    ctx.evidence_of_overlap(run)
    await ctx.assert_as_alone(run)


@check(
    "EQV-8",
    "One request more or less than a power of two at once changes no answer",
    answers=["TGI#2985", "vllm#43810", "vllm#51187"],
    shows=_OVERLAP,
)
async def bucket_sizes(ctx: CheckContext) -> None:
    buckets = [b for b in (2, 4, 8, 16, 32) if b <= ctx.session.budget.crowd]
    size = ctx.draw(st.sampled_from(edges(buckets, low=2, high=buckets[-1] + 1)), "size")
    crowd = ctx.draw_crowd(least=size, most=size, tokens=st.integers(2, 40))
    run = await ctx.run(*crowd)
    ctx.evidence_of_overlap(run)
    await ctx.assert_as_alone(run)


@check(
    "EQV-9",
    "The same request sent several times at once gets the same answer each time",
    answers=["MinivLLM#98", "TensorRT-LLM#2699", "vllm#36939", "FreeToken#471"],
    shows=_OVERLAP,
)
async def identical_twins(ctx: CheckContext) -> None:
    one = ctx.draw_request("twin0")
    copies = ctx.draw(st.integers(2, min(6, ctx.session.budget.crowd)), "copies")
    run = await ctx.run(one, *[replace(one, key=f"twin{i}") for i in range(1, copies)])
    ctx.evidence_of_overlap(run)
    await ctx.assert_as_alone(run)


@check(
    "EQV-10",
    "A request alone on the idle server gets the answer that the model gives",
    answers=["nano-vllm#144", "openvino.genai#4047", "vllm#43990", "mistral.rs#246"],
    needs=[Capability.KNOWN_ANSWERS],
    cost=2,
)
async def alone(ctx: CheckContext) -> None:
    sizes = edges(ctx.page_sizes, low=2, high=ctx.longest_prompt)
    tokens = st.one_of(st.integers(2, 20), st.sampled_from(sizes))
    await ctx.assert_as_alone(await ctx.run(ctx.draw_request("alone", tokens=tokens)))


@check(
    "EQV-11",
    "Streamed and whole answers in one batch are both those of the request alone",
    answers=["transformers#39149", "llama.cpp#4036", "FreeToken#222"],
    shows=_OVERLAP,
)
async def streamed_beside_whole(ctx: CheckContext) -> None:
    crowd = ctx.draw_crowd(least=4)
    mixed = [replace(r, stream=i % 2 == 0) for i, r in enumerate(crowd)]
    run = await ctx.run(*mixed)
    ctx.evidence_of_overlap(run)
    await ctx.assert_as_alone(run)


@check(
    "EQV-12",
    "Two bursts a moment apart do not disturb each other's answers",
    answers=["vllm-gaudi#524", "tenstorrent/vllm#326", "llama.cpp#16448"],
    shows=_OVERLAP,
)
async def two_bursts(ctx: CheckContext) -> None:
    half = max(2, ctx.session.budget.crowd // 2)
    first = ctx.draw_crowd(least=2, most=half, label="a")
    second = ctx.draw_crowd(least=2, most=half, label="b")
    gap_s = ctx.draw(st.sampled_from([0.02, 0.05, 0.1]), "gap_s")
    run = await ctx.run(*first, *[at(r, gap_s) for r in second])
    ctx.evidence_of_overlap(run)
    await ctx.assert_as_alone(run)
