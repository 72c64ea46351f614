"""CCH: an answer that starts from cached keys and values is the answer that starts from none."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from harness.checks.assertions import assert_that
from harness.checks.capabilities import Capability
from harness.checks.context import CheckContext
from harness.checks.draws import COMMON_SIZES, contents, edges
from harness.checks.evidence import cached_tokens
from harness.checks.example import NotApplicable, Run, after, hanging_up
from harness.checks.registry import check
from harness.oracles.oracle import Prompt
from workloads.workload import WorkloadRequest

_HIT = {"cached_tokens": 1}
_LEAST_PAGE = 8


def evidence_of_hits(ctx: CheckContext, *runs: Run) -> None:
    """Record the prompt tokens that came from the cache, by the server's own word."""
    ctx.evidence("cached_tokens", sum(cached_tokens(run.transcript) for run in runs))


def page_of(ctx: CheckContext) -> int:
    """The server's page size, or one drawn from those in use.

    Where pages are of a few tokens every length is a boundary, and a larger size will do.
    """
    known = ctx.capabilities.page_size
    if known and known >= _LEAST_PAGE:
        return known
    most = ctx.longest_prompt
    return int(ctx.draw(st.sampled_from([p for p in COMMON_SIZES if 2 * p < most]), "page"))


def several_pages(ctx: CheckContext, page: int) -> int:
    """A drawn number of pages, at least two, that leaves room for a tail."""
    most = max(2, (ctx.longest_prompt - page) // page)
    return int(ctx.draw(st.integers(2, min(6, most)), "pages"))


def edited(ctx: CheckContext, prompt: Prompt, place: int, content: str) -> Prompt:
    """The prompt with another token at ``place``, BOS counted; another letter, if ids are unknown.

    BOS itself stays: place 0 is then the token after it.
    """
    oracle = ctx.session.oracle
    place = max(place, oracle.bos_tokens)
    others = ctx.prompt(max(len(prompt.ids or ()), 8), content)
    if prompt.ids is None or others.ids is None:
        text = prompt.text or ""
        place = min(place, len(text) - 1)
        letter = next((c for c in others.text or "" if c != text[place]), "~")
        return Prompt(None, text[:place] + letter + text[place + 1 :])
    for token in others.ids[oracle.bos_tokens :]:
        ids = (*prompt.ids[:place], token, *prompt.ids[place + 1 :])
        said = oracle.text(ids[oracle.bos_tokens :])
        for text in (said, f" {said}"):  # some tokenizers drop a leading space
            if token != prompt.ids[place] and oracle.encode(text) == ids:
                return Prompt(ids, text)
    raise NotApplicable("no two words of this model's tokenizer can take each other's place")


@check(
    "CCH-1",
    "A prompt sent again, and again, gets the answer that it got the first time",
    answers=["lmdeploy#3308", "vllm#36939", "mistral.rs#1026", "TensorRT-LLM#2699"],
    shows=_HIT,
    cost=1.5,
)
async def cold_warm_warm(ctx: CheckContext) -> None:
    lengths = st.sampled_from(edges(ctx.page_sizes, low=20, high=ctx.longest_prompt))
    request = ctx.draw_request("cold", tokens=lengths)
    runs = [await ctx.run(replace(request, key=key)) for key in ("cold", "warm", "again")]
    evidence_of_hits(ctx, *runs[1:])
    for run in runs:
        await ctx.assert_as_alone(run)


@check(
    "CCH-2",
    "Prompts that share whole pages, one token less or one more keep their own answers",
    answers=["nano-vllm#199", "vllm#55766", "tenstorrent/vllm#415", "openvino.genai#3723"],
    shows=_HIT,
    cost=1.5,
)
async def shared_pages(ctx: CheckContext) -> None:
    page = page_of(ctx)
    shared = several_pages(ctx, page) * page
    content, tail = ctx.draw(st.tuples(contents(), st.integers(1, 12)), "content and tail")
    first = await ctx.run(ctx.ask("owner", ctx.extended(shared, content, tail, "owner"), 8))
    others = [
        ctx.ask(name, ctx.extended(shared + more, content, tail, name), 12)
        for name, more in (("less", -1), ("equal", 0), ("more", 1))
    ]
    second = await ctx.run(*others)
    evidence_of_hits(ctx, second)
    for run in (first, second):
        await ctx.assert_as_alone(run)


@check(
    "CCH-3",
    "A prompt of whole pages that is cached in full is answered as when it was new",
    answers=["nano-vllm#144", "openvino.genai#4047", "sglang#38140", "vllm#3251"],
    shows=_HIT,
)
async def full_hit(ctx: CheckContext) -> None:
    page = page_of(ctx)
    tokens = several_pages(ctx, page) * page
    content = ctx.draw(contents(), "content")
    prompt = ctx.prompt(tokens, content)
    runs = [await ctx.run(ctx.ask(f"r{i}", prompt, 12)) for i in range(3)]
    evidence_of_hits(ctx, *runs[1:])
    for run in runs:
        await ctx.assert_as_alone(run)


@check(
    "CCH-4",
    "A prefix whose owner is still being answered can be shared without harm to either",
    answers=["MinivLLM#98", "vllm#42490", "sglang#24221", "vllm#38606"],
    shows=_HIT,
)
async def owner_is_running(ctx: CheckContext) -> None:
    page = page_of(ctx)
    shared = several_pages(ctx, page) * page + ctx.draw(st.integers(-1, 1), "more")
    content, wait = ctx.draw(st.tuples(contents(), st.integers(1, 4)), "content and wait")
    most = ctx.session.budget.output_tokens
    owner = ctx.ask("owner", ctx.extended(shared, content, 3, "owner"), most)
    guests = [ctx.ask(f"g{i}", ctx.extended(shared, content, 2 + i, f"g{i}"), 12) for i in range(3)]
    run = await ctx.run(owner, *[after(g, "owner", wait) for g in guests])
    ctx.evidence_of_overlap(run)
    evidence_of_hits(ctx, run)
    await ctx.assert_as_alone(run)


@check(
    "CCH-5",
    "A prefix whose owner hung up is either right or not in the cache",
    answers=["vllm#41400", "TGI#2489", "sglang#23392", "sglang#38319"],
    cost=1.5,
)
async def owner_hung_up(ctx: CheckContext) -> None:
    most = ctx.longest_prompt
    tokens, content, cut = ctx.draw(
        st.tuples(st.integers(most // 2, most), contents(), st.integers(0, 2)), "owner"
    )
    prompt = ctx.prompt(tokens, content)
    owner = hanging_up(ctx.ask("owner", prompt, 16), after_tokens=cut)
    first = await ctx.run(owner)
    second = await ctx.run(ctx.ask("retry", prompt, 12), ctx.ask("again", prompt, 12))
    evidence_of_hits(ctx, second)
    for run in (first, second):
        await ctx.assert_as_alone(run)


@check(
    "CCH-6",
    "A prompt whose cached pages were evicted is answered as when it was new",
    answers=["vllm#37076", "sglang#8649", "TensorRT-LLM#8813"],
    needs=[Capability.CACHED_TOKENS],
    shows={"evicted_tokens": 1},
    cost=0.5,
)
async def evicted(ctx: CheckContext) -> None:
    page = page_of(ctx)
    tokens = several_pages(ctx, page) * page + 1
    content = ctx.draw(contents(), "content")
    prompt = ctx.prompt(tokens, content)
    first = await ctx.run(ctx.ask("first", prompt, 8))
    warm = await ctx.run(ctx.ask("warm", prompt, 8))
    most = ctx.longest_prompt
    flood = ctx.draw_crowd(
        least=ctx.enough_to_fill(3 * most // 4, least=4),
        tokens=st.integers(3 * most // 4, most),
        max_tokens=4,
    )
    flooded = await ctx.run(*flood)
    again = await ctx.run(ctx.ask("again", prompt, 8))
    hits = cached_tokens(warm.transcript)
    ctx.evidence("evicted_tokens", max(0, hits - cached_tokens(again.transcript)))
    for run in (first, warm, flooded, again):
        await ctx.assert_as_alone(run)


async def _near_miss(ctx: CheckContext, place_of: str) -> None:
    """Two prompts of some pages that differ in one token, one after the other and together."""
    page = page_of(ctx)
    pages = several_pages(ctx, page)
    tokens = pages * page + ctx.draw(st.integers(1, 4), "tail")
    content = ctx.draw(contents(), "content")
    place = {
        "first": 0,
        "middle": ctx.draw(st.integers(2, tokens - 3), "place") if place_of == "middle" else 0,
        "page end": page * ctx.draw(st.integers(1, pages - 1), "page end") - 1
        if place_of == "page end"
        else 0,
    }[place_of]
    original = ctx.prompt(tokens, content)
    twin = edited(ctx, original, place, "twin")
    first = await ctx.run(ctx.ask("original", original, 12))
    second = await ctx.run(ctx.ask("twin", twin, 12), ctx.ask("original", original, 12))
    evidence_of_hits(ctx, second)
    for run in (first, second):
        await ctx.assert_as_alone(run)


@check(
    "CCH-7",
    "A prompt that differs from a cached one in its first token gets its own answer",
    answers=["vllm#12621", "openvino.genai#3723", "kvcached#451"],
    shows=_HIT,
)
async def near_miss_in_the_first_token(ctx: CheckContext) -> None:
    await _near_miss(ctx, "first")


@check(
    "CCH-8",
    "A prompt that differs from a cached one in one token of its middle gets its own answer",
    answers=["vllm#54727", "vllm-mlx#385", "vllm-mlx#775"],
    shows=_HIT,
)
async def near_miss_in_the_middle(ctx: CheckContext) -> None:
    await _near_miss(ctx, "middle")


@check(
    "CCH-9",
    "A prompt that differs from a cached one in the last token of a page gets its own answer",
    answers=["openvino.genai#3723", "kvcached#451", "vllm#12621"],
    shows=_HIT,
)
async def near_miss_at_a_page_end(ctx: CheckContext) -> None:
    await _near_miss(ctx, "page end")


@check(
    "CCH-10",
    "A prompt cached under one salt is not served to a request with another salt, or with none",
    answers=["vllm#44701", "vllm#38606", "vllm#12621"],
    needs=[Capability.CACHE_SALT, Capability.CACHED_TOKENS],
    shows=_HIT,
)
async def salts_keep_apart(ctx: CheckContext) -> None:
    page = page_of(ctx)
    tokens = several_pages(ctx, page) * page + 1
    content = ctx.draw(contents(), "content")
    nonce = ctx.session.nonce()
    prompt = ctx.prompt(tokens, f"{content}/{nonce}")

    async def salted(key: str, salt: str | None = None) -> int:
        fields = {} if salt is None else {"cache_salt": salt}
        run = await ctx.run(ctx.ask(key, prompt, 8, stream=True, **fields))
        await ctx.assert_as_alone(run)
        return cached_tokens(run.transcript)

    await salted("first", f"a{nonce}")
    for key, salt in (("other", f"b{nonce}"), ("none", None)):
        hits = await salted(key, salt)
        assert_that(
            hits == 0,
            f"{hits} tokens cached under another salt were served to request {key}",
            request_key=key,
            expected=0,
            actual=hits,
        )
    ctx.evidence("cached_tokens", await salted("same", f"a{nonce}"))


@check(
    "CCH-11",
    "A conversation that goes on from a cached answer is answered as if it were new",
    answers=["mlx-lm#1746", "strands-sglang#34", "sglang#36475", "tenstorrent/vllm#415"],
    needs=[Capability.KNOWN_ANSWERS],
    shows=_HIT,
)
async def next_turn(ctx: CheckContext) -> None:
    largest = max(p for p in COMMON_SIZES if 2 * p < ctx.longest_prompt)
    page = ctx.capabilities.page_size or largest  # a shorter conversation would fill no page
    turn: WorkloadRequest = ctx.draw_request("turn0", tokens=st.integers(page + 20, page + 60))
    for number in range(1, 4):
        run = await ctx.run(turn)
        await ctx.assert_as_alone(run)
        if number > 1:
            evidence_of_hits(ctx, run)
        answer = (await ctx.expect(turn)).text
        words = ctx.prompt(8, f"turn {number}").text or ""
        text = (ctx.text_of_prompt(turn)) + answer + words
        turn = ctx.ask(f"turn{number}", Prompt(ctx.session.oracle.encode(text), text), 12)


@check(
    "CCH-12",
    "The pages of a cached prompt in another order are another prompt",
    answers=["vllm#12621", "openvino.genai#3723", "llama.cpp#17316"],
)
async def pages_in_another_order(ctx: CheckContext) -> None:
    page = page_of(ctx)
    content = ctx.draw(contents(), "content")
    pieces = [ctx.prompt(page + 1, f"{content}/{i}").text or "" for i in range(3)]
    head = ctx.prompt(page, f"{content}/head").text or ""
    oracle = ctx.session.oracle
    orders = ((0, 1, 2), (1, 0, 2), (2, 1, 0), (0, 2, 1))
    for number, order in enumerate(orders):
        text = head + "".join(pieces[i] for i in order) + "."
        run = await ctx.run(ctx.ask(f"order{number}", Prompt(oracle.encode(text), text), 12))
        evidence_of_hits(ctx, run)
        await ctx.assert_as_alone(run)
