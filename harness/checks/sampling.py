"""SMP: how one request is sampled is its own affair, and its parameters do what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from hypothesis import strategies as st

from harness.checks.assertions import assert_complete, assert_equal, assert_that
from harness.checks.capabilities import Capability
from harness.checks.coin import FLIPS, Coin, assert_probability, flipped, measured_coin
from harness.checks.context import CheckContext
from harness.checks.draws import contents
from harness.checks.registry import check
from workloads.workload import WorkloadRequest

_OVERLAP = {"interleaved_pairs": 1}
_COIN = (Capability.LOGPROBS, Capability.LOGIT_BIAS)
_SEEDS = st.integers(1, 2**31 - 1)
_LEAST_CHARACTERS: Final = 24

# What a neighbour may ask for without touching the greedy request beside it.
_STANDARD: Final[tuple[Mapping[str, Any], ...]] = (
    {"temperature": 2.0},
    {"temperature": 1.0, "top_p": 0.1, "seed": 11},
    {"presence_penalty": 2.0},
    {"frequency_penalty": -2.0},
    {"logprobs": 3},
)


def exotic_params(ctx: CheckContext) -> list[Mapping[str, Any]]:
    """Parameters of many kinds, as far as the server knows them."""
    found = list(_STANDARD)
    second = ctx.session.oracle.second_token()
    extras: tuple[tuple[Capability, Mapping[str, Any]], ...] = (
        (Capability.STOP, {"stop": ["a", "Q", "7"]}),
        (Capability.TOP_K, {"temperature": 1.5, "top_k": 2}),
        (Capability.IGNORE_EOS, {"ignore_eos": True}),
        (Capability.MIN_TOKENS, {"min_tokens": 6}),
    )
    found += [params for capability, params in extras if capability in ctx.capabilities]
    if Capability.LOGIT_BIAS in ctx.capabilities and second is not None:
        found.append({"logit_bias": {str(second[0]): 100}})
    if Capability.LOGPROBS not in ctx.capabilities:
        found = [params for params in found if "logprobs" not in params]
    return found


def _neighbours(ctx: CheckContext, count: int) -> list[WorkloadRequest]:
    kinds = exotic_params(ctx)
    chosen = ctx.draw(
        st.lists(st.integers(0, len(kinds) - 1), min_size=count, max_size=count), "parameters"
    )
    rows = ctx.draw_crowd(least=count, most=count, tokens=st.integers(2, 60), label="exotic")
    return [
        replace(r, params={**r.params, **kinds[kind]}) for r, kind in zip(rows, chosen, strict=True)
    ]


@check(
    "SMP-1",
    "A greedy request is not touched by the parameters of its neighbours",
    answers=["vllm#1309", "vllm#14301", "TensorRT-LLM#1632", "FreeToken#471", "vllm#22896"],
    shows=_OVERLAP,
    cost=2,
)
async def greedy_among_exotics(ctx: CheckContext) -> None:
    greedy = ctx.draw_crowd(least=2, most=4, label="greedy")
    exotic = _neighbours(ctx, ctx.draw(st.integers(2, 5), "neighbours"))
    place = ctx.draw(st.integers(0, len(exotic)), "place")
    run = await ctx.run(*exotic[:place], *greedy, *exotic[place:])
    ctx.evidence_of_overlap(run)
    assert_complete(*run.answers)
    await ctx.assert_as_alone(run, *[g.key for g in greedy])


@check(
    "SMP-2",
    "The order in which greedy and sampled requests are sent changes no greedy answer",
    answers=["vllm#5639", "sarathi-serve#18", "tpu-inference#1563", "vllm-tt-plugin#56"],
    shows=_OVERLAP,
)
async def order_of_parameters(ctx: CheckContext) -> None:
    greedy = ctx.draw_crowd(least=2, most=3, label="greedy")
    everyone = [*greedy, *_neighbours(ctx, 3)]
    for order in (everyone, everyone[::-1]):
        run = await ctx.run(*order)
        ctx.evidence_of_overlap(run)
        await ctx.assert_as_alone(run, *[g.key for g in greedy])


@check(
    "SMP-3",
    "Temperature 0 is greedy whatever top_p, top_k and seed say",
    answers=["FreeToken#471", "vllm#14301", "TensorRT-LLM#1632"],
)
async def zero_is_greedy(ctx: CheckContext) -> None:
    crowd = ctx.draw_crowd(least=3, tokens=st.integers(2, 60))
    variants: list[Mapping[str, Any]] = [{"top_p": 0.3}, {"seed": 5}, {"top_p": 0.01, "seed": 9}]
    if Capability.TOP_K in ctx.capabilities:
        variants.append({"top_k": 3, "top_p": 0.9})
    rows = [
        replace(r, params={**r.params, **variants[i % len(variants)]}) for i, r in enumerate(crowd)
    ]
    run = await ctx.run(*rows)
    ctx.evidence_of_overlap(run)
    await ctx.assert_as_alone(run)


@check(
    "SMP-4",
    "A logit bias forces its token in the request that asks for it, and in no other",
    answers=["vllm#1309", "aprender#2027", "tpu-inference#1563", "vllm-gaudi#1199"],
    needs=_COIN,
    shows={**_OVERLAP, "forced_answers": 1},
)
async def bias_forces(ctx: CheckContext) -> None:
    coin = await measured_coin(ctx)
    plain = ctx.draw_crowd(least=2, most=4, label="plain")
    biased = ctx.draw_crowd(least=1, most=3, label="biased", **coin.params(40.0))
    rows = [r for pair in zip(plain, [*biased, *[None] * 4], strict=False) for r in pair if r]
    run = await ctx.run(*rows)
    ctx.evidence_of_overlap(run)
    for request in biased:
        if request.key not in run.transcript.requests:
            continue
        answer = run[request.key]
        assert_complete(answer)
        text = answer.first.text
        if coin.outweighed(text, answer.first.finish_reasons):
            continue
        ctx.evidence("forced_answers", 1)
        forced = coin.text * (len(text) // len(coin.text))
        assert_equal(f"the text of {request.key}", text, forced or coin.text, key=request.key)
    await ctx.assert_as_alone(run, *[p.key for p in plain])


@check(
    "SMP-5",
    "A logit bias of -100 keeps a token out, beside requests that may use it",
    answers=["vllm#1309", "aprender#2027", "vllm#22896"],
    needs=[*_COIN, Capability.TOKEN_IDS_OUT, Capability.KNOWN_ANSWERS],
    shows=_OVERLAP,
)
async def bias_forbids(ctx: CheckContext) -> None:
    free = ctx.draw_request("free", max_tokens=16)
    first = ((await ctx.expect(free)).token_ids or (0,))[0]
    bias = {"logit_bias": {str(first): -100}}
    barred = replace(free, key="barred", params={**free.params, **bias})
    run = await ctx.run(barred, free)
    ctx.evidence_of_overlap(run)
    assert_complete(*run.answers)
    given = (run["barred"].first.token_ids or (None,))[0]
    assert_that(
        given != first,
        f"the first token of barred is {given}, which a bias of -100 forbids",
        request_key="barred",
        expected=f"not {first}",
        actual=given,
    )
    await ctx.assert_as_alone(run, "free")


def seeded(ctx: CheckContext, key: str, seed: int | None, coin: Coin, content: int) -> Any:
    """A request of fair flips; without a seed the field is left out."""
    params = coin.params() | ({} if seed is None else {"seed": seed})
    if Capability.IGNORE_EOS in ctx.capabilities:
        params["ignore_eos"] = True
    return ctx.ask(key, ctx.prompt(10, content), FLIPS, **params)


def too_short(texts: Sequence[str]) -> bool:
    """Whether answers ended so early that equal ones may be chance: under 24 flips."""
    return any(len(text) < _LEAST_CHARACTERS for text in texts)


@check(
    "SMP-6",
    "The same seed gives the same answer again, another seed another one",
    answers=["llama.cpp#7381", "aprender#2027", "vllm#6449"],
    needs=[Capability.SEED, *_COIN],
)
async def seed_reproduces(ctx: CheckContext) -> None:
    coin = await measured_coin(ctx)
    seed, content = ctx.draw(st.tuples(_SEEDS, contents()), "seed")
    texts = []
    for key, number in (("first", seed), ("again", seed), ("other", seed + 1)):
        run = await ctx.run(seeded(ctx, key, number, coin, content))
        assert_complete(*run.answers)
        texts.append(run[key].first.text)
    assert_equal("the answer with the same seed", texts[1], texts[0], key="again")
    assert_that(
        texts[2] != texts[0] or too_short(texts),
        "another seed gave the same answer", request_key="other",
        expected="another answer", actual=texts[2],
    )  # fmt: skip


@check(
    "SMP-7",
    "A seeded answer is the same beside neighbours, seeded or not, and in any order",
    answers=["vllm#51226", "vllm#17524", "TensorRT-LLM#1632"],
    needs=[Capability.SEED, *_COIN],
    shows=_OVERLAP,
    cost=1.5,
)
async def seed_is_local(ctx: CheckContext) -> None:
    coin = await measured_coin(ctx)
    seed, content = ctx.draw(st.tuples(_SEEDS, contents()), "seed")
    mine = seeded(ctx, "mine", seed, coin, content)
    alone = await ctx.run(mine)
    others = [seeded(ctx, f"other{i}", seed + i if i % 2 else None, coin, i) for i in range(1, 5)]
    for rows in ([mine, *others], [*others, mine]):
        run = await ctx.run(*rows)
        ctx.evidence_of_overlap(run)
        assert_complete(*run.answers)
        assert_equal(
            "the seeded answer beside others",
            run["mine"].first.text,
            alone["mine"].first.text,
            key="mine",
        )


@check(
    "SMP-8",
    "Several choices of one sampled request are drawn independently",
    answers=["vllm#11898", "vllm#16863"],
    needs=[Capability.SEED, Capability.N, *_COIN],
)
async def choices_differ(ctx: CheckContext) -> None:
    coin = await measured_coin(ctx)
    seed, content = ctx.draw(st.tuples(_SEEDS, contents()), "seed")
    request = seeded(ctx, "several", seed, coin, content)
    run = await ctx.run(replace(request, params={**request.params, "n": 3}))
    assert_complete(*run.answers)
    texts = [run["several"].choices[i].text for i in sorted(run["several"].choices)]
    assert_that(
        len(set(texts)) == 3 or too_short(texts),
        "choices of one sampled request are equal", request_key="several",
        expected="three different answers", actual=texts,
    )  # fmt: skip


@check(
    "SMP-9",
    "Requests without a seed are drawn independently of one another",
    answers=["vllm#51226", "TensorRT-LLM#1632", "aprender#2027"],
    needs=_COIN,
    shows=_OVERLAP,
)
async def unseeded_differ(ctx: CheckContext) -> None:
    coin = await measured_coin(ctx)
    content = ctx.draw(contents(), "content")
    run = await ctx.run(*[seeded(ctx, f"r{i}", None, coin, content) for i in range(4)])
    ctx.evidence_of_overlap(run)
    assert_complete(*run.answers)
    texts = [a.first.text for a in run.answers]
    assert_that(
        len(set(texts)) == 4 or too_short(texts), "sampled answers without a seed are equal",
        expected="four different answers", actual=texts,
    )  # fmt: skip


@check(
    "SMP-10",
    "Tokens are drawn with the probabilities that the logits and the temperature give",
    answers=["aprender#2027", "vllm#1309", "TensorRT-LLM#1632"],
    needs=_COIN,
    shows=_OVERLAP,
)
async def temperature_works(ctx: CheckContext) -> None:
    coin = await measured_coin(ctx)
    for temperature in (0.5, 1.0, 2.0):
        hits, trials = await flipped(ctx, coin, 1.2, temperature=temperature)
        expected = Coin.probability(1.2, temperature)
        assert_probability(hits, trials, expected, f"temperature {temperature}")


@check(
    "SMP-11",
    "top_p leaves out the tokens beyond its mass, in a batch too",
    answers=["vllm#14301", "aprender#2027", "FreeToken#471"],
    needs=_COIN,
)
async def top_p_works(ctx: CheckContext) -> None:
    coin = await measured_coin(ctx)
    hits, trials = await flipped(ctx, coin, 1.2, top_p=0.5)
    assert_equal("the draws of the likelier token with top_p 0.5", hits, trials)


@check(
    "SMP-12",
    "top_k 1 takes the likeliest token whatever the temperature, in a batch too",
    answers=["vllm#14301", "aprender#2027", "vllm#1309"],
    needs=[Capability.TOP_K, *_COIN],
)
async def top_k_works(ctx: CheckContext) -> None:
    coin = await measured_coin(ctx)
    hits, trials = await flipped(ctx, coin, 0.8, top_k=1, temperature=2.0)
    assert_equal("the draws of the likelier token with top_k 1", hits, trials)
