"""Finds out what a server can do, by asking it small questions while it is idle.

Each question is one request. A field counts as supported when a request that carries it is
answered; where a server lets any field through, nonsense included, fields outside the OpenAI API
count only if they are seen to work, for which the probes and usage give several signs. A server
that goes away meanwhile lacks nothing: it is unusable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from harness.checks.asker import Asker
from harness.checks.capabilities import Capabilities, Capability
from harness.checks.gauges import dialect_of
from harness.checks.presence import UNSAID, plain_ending
from harness.oracles.oracle import Oracle
from harness.oracles.probe import ProbeOracle
from harness.targets.http import HttpTarget
from harness.targets.target import TargetUnusable
from harness.transcript import Ending, RequestTranscript
from workloads.workload import WorkloadRequest

_PROMPT_TOKENS: Final = 28
_MAX_TOKENS: Final = 4

# Fields of the OpenAI API: a server that answers a request with one is taken at its word.
_STANDARD: Final[Mapping[Capability, Mapping[str, Any]]] = {
    Capability.SEED: {"seed": 7},
    Capability.STOP: {"stop": ["~never~"]},
    Capability.LOGIT_BIAS: {"logit_bias": {"1": -1}},
}
# Fields beyond it.
_EXTRA: Final[Mapping[Capability, Mapping[str, Any]]] = {
    Capability.IGNORE_EOS: {"ignore_eos": True},
    Capability.MIN_TOKENS: {"min_tokens": 1},
    Capability.TOP_K: {"top_k": 5},
    Capability.MIN_P: {"min_p": 0.1},
    Capability.REPETITION_PENALTY: {"repetition_penalty": 1.0},
    Capability.STOP_TOKEN_IDS: {"stop_token_ids": [1]},
    Capability.CACHE_SALT: {"cache_salt": "isobatch"},
}


@dataclass(slots=True)
class _Questions:
    """Asks, and remembers what was found."""

    asker: Asker
    oracle: Oracle
    has: set[Capability] = field(default_factory=set)
    why_not: dict[Capability, str] = field(default_factory=dict)

    async def ask(
        self,
        fields: Mapping[str, Any] | None = None,
        *,
        ids: bool = False,
        content: str = "q",
        stream: bool = True,
    ) -> RequestTranscript:
        """One small streamed request. Raises TargetUnusable when the server went away over it."""
        prompt = self.oracle.prompt(_PROMPT_TOKENS, f"discovery/{content}")
        params = {"max_tokens": _MAX_TOKENS, "temperature": 0, **(fields or {})}
        request = WorkloadRequest(
            "question",
            prompt_ids=prompt.ids if ids else None,
            prompt_text=None if ids else prompt.text,
            params=params,
            stream=stream,
        )
        answer = await self.asker.one(request, "discovery")
        if answer.ending in UNSAID:
            await self._ensure_there(", ".join(fields or ("a plain question",)), answer)
        return answer

    async def _ensure_there(self, asked: str, answer: RequestTranscript) -> None:
        """Raise unless a plain request is answered: some servers hang up on an odd question."""
        if await plain_ending(self.asker, self.oracle) in UNSAID:
            raise TargetUnusable(
                f"the server went away while {asked} was asked: {_reason(answer)}; "
                "start it again and repeat"
            )

    def found(self, capability: Capability, holds: bool, reason: str = "") -> None:
        """Note the outcome of a question."""
        if holds:
            self.has.add(capability)
        else:
            self.why_not[capability] = reason


async def discover_capabilities(
    asker: Asker, oracle: Oracle, context_limit: int | None = None
) -> Capabilities:
    """Ask, while nothing else runs. ``context_limit`` is what the server says of its model.

    Raises TargetUnusable when the server goes away meanwhile.
    """
    questions = _Questions(asker, oracle)
    plain = await questions.ask()
    _read_plain_answer(questions, plain)
    await _ask_about_prompts(questions, plain, oracle)
    await _ask_about_logprobs(questions)
    await _ask_about_fields(questions)
    same_n = await _ask_about_choices(questions)
    page_size = await _page_size(questions)
    dialect = dialect_of(await asker.target.metrics())
    questions.found(Capability.METRICS, dialect is not None, "/metrics shows no known names")
    questions.found(
        Capability.CONTEXT_LIMIT, context_limit is not None, "/v1/models gives no max_model_len"
    )
    _note_oracle(questions, oracle)
    return Capabilities(
        frozenset(questions.has),
        dict(questions.why_not),
        context_limit=context_limit,
        page_size=page_size,
        metrics_dialect=dialect,
        same_n=same_n,
    )


def _read_plain_answer(questions: _Questions, plain: RequestTranscript) -> None:
    questions.found(
        Capability.TOKEN_IDS_OUT,
        plain.first.token_ids is not None,
        "no token_ids in the answer, even with return_token_ids",
    )
    questions.found(Capability.USAGE, plain.usage is not None, "no usage in the stream")
    cached = plain.usage.cached_tokens if plain.usage else None
    questions.found(Capability.CACHED_TOKENS, cached is not None, "usage does not tell")


async def _ask_about_prompts(
    questions: _Questions, plain: RequestTranscript, oracle: Oracle
) -> None:
    if oracle.prompt(2, "").ids is None:
        reason = f"the {oracle.name} oracle does not know the tokenizer"
        questions.found(Capability.TOKEN_ID_PROMPTS, False, reason)
        return
    answer = await questions.ask(ids=True)
    accepted = answer.ending is Ending.COMPLETE
    same = accepted and answer.first.text == plain.first.text
    reason = _reason(answer) if not accepted else "they are not taken for the same prompt as text"
    questions.found(Capability.TOKEN_ID_PROMPTS, same or accepted, reason)


async def _ask_about_logprobs(questions: _Questions) -> None:
    answer = await questions.ask({"logprobs": 2})
    shown = answer.ending is Ending.COMPLETE and any(
        chunk.logprobs is not None for chunk in answer.first.chunks
    )
    questions.found(Capability.LOGPROBS, shown, _reason(answer) or "none in the answer")
    answer = await questions.ask({"prompt_logprobs": 1}, stream=False)
    shown = answer.ending is Ending.COMPLETE and answer.prompt_logprobs is not None
    questions.found(Capability.PROMPT_LOGPROBS, shown, _reason(answer) or "none in the answer")


async def _ask_about_fields(questions: _Questions) -> None:
    nonsense = await questions.ask({"isobatch_no_such_field": 1})
    strict = nonsense.ending is Ending.REFUSED
    for capability, fields in _STANDARD.items():
        answer = await questions.ask(fields)
        questions.found(capability, answer.ending is Ending.COMPLETE, _reason(answer))
    for capability, fields in _EXTRA.items():
        answer = await questions.ask(fields)
        accepted = answer.ending is Ending.COMPLETE
        if accepted and not strict:
            accepted = await _refuses_wrong_type(questions, next(iter(fields)))
            reason = "the field is let through like any unknown one"
        else:
            reason = _reason(answer)
        questions.found(capability, accepted, reason)


async def _ask_about_choices(questions: _Questions) -> Mapping[str, Any]:
    """Several choices, greedy or drawn; the fields that make each of them the right answer.

    vLLM refuses several greedy choices. Drawn from the likeliest token alone they are the same.
    """
    greedy = await questions.ask({"n": 2})
    if _has_two(greedy) or greedy.ending is not Ending.REFUSED:
        for capability in (Capability.N, Capability.SAME_N):
            reason = _reason(greedy) or "only one choice came back"
            questions.found(capability, _has_two(greedy), reason)
        return {}
    drawn = await questions.ask({"n": 2, "temperature": 1.0})
    reason = _reason(drawn) or "only one choice came back"
    questions.found(Capability.N, _has_two(drawn), reason)
    known = _has_two(drawn) and questions.oracle.exact and Capability.TOP_K in questions.has
    questions.found(Capability.SAME_N, known, _reason(greedy))
    return {"temperature": 1.0, "top_k": 1} if known else {}


def _has_two(answer: RequestTranscript) -> bool:
    return answer.ending is Ending.COMPLETE and set(answer.choices) == {0, 1}


async def _refuses_wrong_type(questions: _Questions, name: str) -> bool:
    """A server that lets unknown fields through but reads this one refuses nonsense in it."""
    answer = await questions.ask({name: {"not": ["of", "this", "type"]}})
    return answer.ending is Ending.REFUSED


async def _page_size(questions: _Questions) -> int | None:
    """The page size that `cached_tokens` of a repeated prompt betrays, as far as one prompt can.

    Of 28 prompt tokens at most 27 can be taken from the cache, rounded down to whole pages.
    """
    if Capability.CACHED_TOKENS not in questions.has:
        return None
    for _ in range(2):
        answer = await questions.ask(content="page size")
    cached = answer.usage.cached_tokens if answer.usage else None
    hits = [p for p in (1, 2, 4, 8, 16) if cached and (_PROMPT_TOKENS - 1) // p * p == cached]
    return max(hits, default=None)


def _note_oracle(questions: _Questions, oracle: Oracle) -> None:
    over_http = isinstance(questions.asker.target, HttpTarget)
    questions.found(Capability.RAW_HTTP, over_http, "it is driven in process")
    known = oracle.name in ("probe", "reference")
    questions.found(Capability.KNOWN_ANSWERS, known, f"the {oracle.name} oracle has none")
    config = oracle.config if isinstance(oracle, ProbeOracle) else None
    ends = config is not None and config.ends_itself
    questions.found(Capability.NATURAL_ENDINGS, ends, "the model is no probe that ends by itself")


def _reason(answer: RequestTranscript) -> str:
    if answer.ending is Ending.COMPLETE:
        return ""
    return (answer.error or answer.ending.value)[:160]
