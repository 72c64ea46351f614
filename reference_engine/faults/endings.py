"""Faults of endings and scores: one token too many, the wrong reason, a neighbour's logprob."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from reference_engine.faults.seam import FaultRun, Healthy, Wrapper, fault, owner

if TYPE_CHECKING:
    from reference_engine.request import Request
    from reference_engine.scheduler import Chunk

LIMITS: Final = "length and count contracts"
SCORES: Final = "misaligned logprobs"


@fault(
    "one-token-too-many",
    "max_tokens allows one token too many",
    imitates=("optimum-neuron#470", "tensorrtllm_backend#167"),
    group=LIMITS,
)
def one_token_too_many() -> Mapping[str, Wrapper]:
    """An answer that is cut by max_tokens is one token longer than it may be."""

    def ending(healthy: Healthy, run: FaultRun) -> Healthy:
        def late(live: Any, token: int, output_tokens: int) -> Any:
            if output_tokens == live.request.params.max_tokens:
                run.executed()
            return healthy(live, token, output_tokens - 1)

        return late

    return {"generation.ending": ending}


@fault(
    "limit-hides-eos",
    "An end at the very limit is reported as cut off",
    imitates=("optimum-neuron#470", "vllm#46243"),
    group=LIMITS,
)
def limit_hides_eos() -> Mapping[str, Wrapper]:
    """When the last allowed token is EOS the reason is given as ``length``."""

    def ending(healthy: Healthy, run: FaultRun) -> Healthy:
        def cut(live: Any, token: int, output_tokens: int) -> Any:
            reason = healthy(live, token, output_tokens)
            if reason == "stop" and output_tokens == live.request.params.max_tokens:
                run.executed()
                return type(reason)("length")
            return reason

        return cut

    return {"generation.ending": ending}


@fault(
    "stop-ids-lost",
    "Only the model's own EOS ends a text",
    imitates=("vllm#5849", "vllm#15407", "tenstorrent/vllm#349"),
    group=LIMITS,
)
def stop_ids_lost() -> Mapping[str, Wrapper]:
    """The request's ``stop_token_ids`` are forgotten on the way."""

    def ending(healthy: Healthy, run: FaultRun) -> Healthy:
        def deaf(live: Any, token: int, output_tokens: int) -> Any:
            if token not in live.request.params.stop_token_ids:
                return healthy(live, token, output_tokens)
            run.executed()
            cut = output_tokens >= live.request.params.max_tokens
            reason = healthy(live, token, output_tokens)
            return type(reason)("length") if cut else None

        return deaf

    return {"generation.ending": ending}


@fault(
    "context-limit-off-by-one",
    "A request that fills the context exactly is refused",
    imitates=("vllm#23683",),
    group=LIMITS,
)
def context_limit_off_by_one() -> Mapping[str, Wrapper]:
    """Prompt and max_tokens may together be one less than the model's context."""

    def check(healthy: Healthy, run: FaultRun) -> Healthy:
        def strict(request: Request) -> None:
            model: Any = owner(healthy).model
            if len(request.prompt_ids) + request.params.max_tokens == model.max_context_tokens:
                run.executed()
                request = replace(
                    request, params=replace(request.params, max_tokens=model.max_context_tokens)
                )
            healthy(request)

        return strict

    return {"engine.check_parameters": check}


@fault(
    "prompt-logprobs-restart",
    "Prompt logprobs of later chunks are shifted",
    imitates=("vllm#4139", "sglang#2403", "vllm#5846"),
    group=SCORES,
)
def prompt_logprobs_restart() -> Mapping[str, Wrapper]:
    """From the second chunk on, prompt logprobs are noted one token too early."""

    def score_prompt(healthy: Healthy, run: FaultRun) -> Healthy:
        def shifted(live: Any, chunk: Chunk, offset: int, logprobs: Any) -> None:
            if chunk.start > 0:
                run.executed()
                offset -= 1
            healthy(live, chunk, offset, logprobs)

        return shifted

    return {"generation.score_prompt": score_prompt}
