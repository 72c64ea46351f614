"""SMP on a dice probe: every draw is held to odds that are known exactly.

The odds of each token follow from the tokens before it (`reference_engine.probe.dice`), so an
answer is judged on its own beginning, draw by draw. A draw of a token that the parameters rule out
is wrong at once. The others are turned into numbers that are uniform if the odds are right (the
randomised probability integral transform), and those are held to it by a chi-square test over 16
equal classes. It is made twice: with the tokens in order of their odds, where a wrong temperature
or cut shows, and with those that were said last first, where a wrong penalty shows. One right set
of parameters in a million is accused.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.checks.assertions import assert_complete, assert_that
from harness.checks.capabilities import Capability
from harness.checks.context import CheckContext
from harness.checks.draws import contents
from harness.checks.registry import check
from harness.oracles.oracle import Prompt
from harness.oracles.probe import ProbeOracle
from reference_engine.probe import ProbeConfig
from reference_engine.probe.dice import token_probabilities
from reference_engine.request import SamplingParams
from workloads.workload import WorkloadRequest

FALSE_ALARM_RATE: Final = 1e-6
CLASSES: Final = 16
ROWS: Final = 6
TOKENS: Final = 64
_NEEDS: Final = (Capability.TOKEN_IDS_OUT, Capability.KNOWN_ANSWERS)
_SHOWS: Final = {"draws": 200}


def dice_config(ctx: CheckContext) -> ProbeConfig:
    """The dice probe that is served; ends the check where none is."""
    oracle = ctx.session.oracle
    if not isinstance(oracle, ProbeOracle) or not oracle.config.dice:
        ctx.unsupported("needs a model whose odds are known: serve the probe variant dice")
    return oracle.config


def uniform(odds: Sequence[float], order: Sequence[int], drawn: int, luck: float) -> float:
    """Where the draw falls among the tokens in this order, by their odds, in [0, 1]."""
    before = 0.0
    for token_id in order:
        if token_id == drawn:
            break
        before += odds[token_id]
    return min(1.0, before + luck * odds[drawn])


def orders_of(odds: Sequence[float], ids: Sequence[int]) -> tuple[list[int], list[int]]:
    """The tokens that can be drawn: the likeliest first; and the one that was said last first."""
    likely = sorted((i for i, p in enumerate(odds) if p > 0), key=lambda i: (-odds[i], i))
    said = {token_id: place for place, token_id in enumerate(ids)}
    return likely, sorted(likely, key=lambda i: -said.get(i, -1))


def chi_square_chance(places: Sequence[float]) -> float:
    """The chance that uniform numbers are spread over `CLASSES` classes as unevenly as these."""
    from scipy.stats import chisquare

    counts = [0] * CLASSES
    for place in places:
        counts[min(CLASSES - 1, int(place * CLASSES))] += 1
    return float(chisquare(counts).pvalue)


def outputs_of(config: ProbeConfig) -> tuple[int, ...]:
    """The tokens that a dice probe draws from."""
    return tuple(ProbeOracle(config).rule.vocabulary.output_ids)


async def assert_odds(
    ctx: CheckContext, *cases: Mapping[str, Any], said: Sequence[int] = ()
) -> None:
    """Draw under each set of parameters, all rows of all cases in one batch, and judge each.

    Every prompt ends with the tokens ``said``.
    """
    __tracebackhide__ = True
    config = dice_config(ctx)
    content = ctx.draw(contents(), "content")
    rows: list[tuple[WorkloadRequest, Mapping[str, Any]]] = []
    for row in range(ROWS):
        for number, case in enumerate(cases):
            prompt = ctx.prompt(5 + row, f"{content}/{number}/{row}")
            if said and prompt.ids is not None:
                prompt = Prompt((*prompt.ids, *said), None)
            wanted: dict[str, Any] = {"temperature": 1.0, **case}
            rows.append((ctx.ask(f"case{number}-{row}", prompt, TOKENS, **wanted), wanted))
    run = await ctx.run(*[request for request, _ in rows])
    ctx.evidence_of_overlap(run)
    assert_complete(*run.answers)
    for number, chosen in enumerate(cases):
        draws: list[tuple[float, float]] = []
        for request, params in rows:
            if request.key.startswith(f"case{number}-"):
                given = run[request.key].first.token_ids or ()
                draws += judged_draws(config, request, params, given)
        assert_fair(ctx, draws, dict(chosen), f"case{number}-0")


def assert_fair(
    ctx: CheckContext, draws: Sequence[tuple[float, float]], params: Mapping[str, Any], key: str
) -> None:
    """The draws lie where draws with these odds lie, in both orders."""
    __tracebackhide__ = True
    ctx.evidence("draws", len(draws))
    if not draws:
        return
    chance = 2 * min(chi_square_chance(places) for places in zip(*draws, strict=True))
    assert_that(
        chance >= FALSE_ALARM_RATE,
        f"{len(draws)} draws with {params} do not have the odds that these parameters give "
        f"(chi-square, chance {chance:.1e})",
        request_key=key,
        expected=f"a chance of at least {FALSE_ALARM_RATE:g}",
        actual=chance,
    )


def judged_draws(
    config: ProbeConfig,
    request: WorkloadRequest,
    params: Mapping[str, Any],
    given: Sequence[int],
) -> list[tuple[float, float]]:
    """Where each draw falls among its odds, in both orders.

    Raises PropertyBroken for a token of odds 0.
    """
    __tracebackhide__ = True
    prompt = ProbeOracle(config).prompt_ids(request)
    sampling = SamplingParams(
        max_tokens=TOKENS,
        **{k: v for k, v in params.items() if k != "logit_bias"},
        logit_bias={int(k): v for k, v in params.get("logit_bias", {}).items()},
    )
    luck = random.Random(request.key)
    places, ids = [], list(prompt)
    for place, token_id in enumerate(given):
        odds = token_probabilities(config, ids, len(prompt), sampling)
        assert_that(
            odds[token_id] > 0,
            f"token {place} of {request.key} is {token_id}, which {dict(params)} rules out",
            request_key=request.key,
            expected=f"one of {sum(p > 0 for p in odds)} other tokens",
            actual=token_id,
        )
        chance = luck.random()
        first, second = (uniform(odds, o, token_id, chance) for o in orders_of(odds, ids))
        places.append((first, second))
        ids.append(token_id)
    return places


@check(
    "SMP-13",
    "At each temperature every token is drawn as often as its logit says",
    answers=["aprender#2027", "vllm#1309", "vllm#6449"],
    needs=_NEEDS,
    shows=_SHOWS,
    cost=0.2,
)
async def temperature_odds(ctx: CheckContext) -> None:
    await assert_odds(ctx, {"temperature": 0.6}, {"temperature": 1.0}, {"temperature": 1.7})


@check(
    "SMP-14",
    "top_p keeps the fewest tokens that reach its mass, and all of those",
    answers=["vllm#14301", "aprender#2027"],
    needs=_NEEDS,
    shows=_SHOWS,
    cost=0.2,
)
async def top_p_odds(ctx: CheckContext) -> None:
    await assert_odds(ctx, {"top_p": 0.3}, {"top_p": 0.75}, {"top_p": 0.9, "temperature": 1.4})


@check(
    "SMP-15",
    "top_k keeps the k likeliest tokens, in a batch of different ones too",
    answers=["vllm#14301", "vllm#1309", "vllm#5639"],
    needs=(*_NEEDS, Capability.TOP_K),
    shows=_SHOWS,
    cost=0.2,
)
async def top_k_odds(ctx: CheckContext) -> None:
    await assert_odds(ctx, {"top_k": 3}, {"top_k": 20, "temperature": 1.5}, {"top_k": 64})


@check(
    "SMP-16",
    "With min_p the tokens that are likely enough beside the likeliest stay, and no others",
    answers=["vllm-ascend#7785", "aprender#2027"],
    needs=(*_NEEDS, Capability.MIN_P),
    shows=_SHOWS,
    cost=0.2,
)
async def min_p_odds(ctx: CheckContext) -> None:
    await assert_odds(ctx, {"min_p": 0.2}, {"min_p": 0.05, "temperature": 1.5})


@check(
    "SMP-17",
    "Presence and frequency penalties count the tokens of the answer, every one, and no others",
    answers=["vllm#27878", "vllm-metal#69", "vllm#5349", "vllm-ascend#7785"],
    needs=(*_NEEDS, Capability.TOKEN_ID_PROMPTS, Capability.LOGIT_BIAS),
    shows=_SHOWS,
    cost=0.2,
)
async def penalty_odds(ctx: CheckContext) -> None:
    config = dice_config(ctx)
    outputs = outputs_of(config)
    # Between two tokens whose logits are alike (they differ in the lightest bit) the penalty alone
    # decides, so one that comes a token late shows at nearly every draw.
    pair = {str(outputs[place << config.sign_bits]): 90.0 for place in (0, 1)}
    await assert_odds(
        ctx,
        {"presence_penalty": 1.5},
        {"frequency_penalty": -0.5},
        {"frequency_penalty": 2.0, "logit_bias": pair},
        said=outputs[::2],
    )


@check(
    "SMP-18",
    "A repetition penalty bears on every token of prompt and answer once",
    answers=["vllm-metal#69", "vllm-ascend#7789", "vllm#5349"],
    needs=(*_NEEDS, Capability.REPETITION_PENALTY),
    shows=_SHOWS,
    cost=0.2,
)
async def repetition_odds(ctx: CheckContext) -> None:
    await assert_odds(ctx, {"repetition_penalty": 1.4}, {"repetition_penalty": 0.8})


@check(
    "SMP-19",
    "A logit bias moves the odds of its own tokens by just as much, in its own row",
    answers=["vllm-ascend#7785", "vllm#1309", "vllm#22896", "aprender#2027"],
    needs=(*_NEEDS, Capability.LOGIT_BIAS),
    shows=_SHOWS,
    cost=0.2,
)
async def bias_odds(ctx: CheckContext) -> None:
    outputs = outputs_of(dice_config(ctx))
    up = {str(token_id): 2.0 for token_id in outputs[::4]}
    down = {str(token_id): -3.0 for token_id in outputs[1::3]}
    await assert_odds(ctx, {"logit_bias": up}, {}, {"logit_bias": down})


@check(
    "SMP-20",
    "Each choice of a sampled request goes on from its own tokens, and not from another choice's",
    answers=["vllm#16863", "MinivLLM#98", "vllm#14280"],
    needs=(*_NEEDS, Capability.N),
    shows=_SHOWS,
    cost=0.2,
)
async def choices_go_their_own_way(ctx: CheckContext) -> None:
    config = dice_config(ctx)
    content = ctx.draw(contents(), "content")
    params: dict[str, Any] = {"temperature": 1.0}
    crowd = [
        ctx.ask(f"r{i}", ctx.prompt(5 + 7 * i, f"{content}/{i}"), TOKENS // 2, n=3, **params)
        for i in range(ROWS)
    ]
    run = await ctx.run(*crowd)
    assert_complete(*run.answers)
    draws: list[tuple[float, float]] = []
    for request in crowd:
        for _, choice in sorted(run[request.key].choices.items()):
            draws += judged_draws(config, request, params, choice.token_ids or ())
    assert_fair(ctx, draws, params | {"n": 3}, "r0")
