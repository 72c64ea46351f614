"""Faults of the sampler: parameters of another row, shared generators, wrong limits."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from reference_engine.faults.seam import FaultRun, Healthy, Wrapper, fault

if TYPE_CHECKING:
    from reference_engine.request import Request, SamplingParams

ROWS: Final = "parameters applied to the wrong row"
SEEDS: Final = "seeds and generators shared between rows"
LIMITS: Final = "length and count contracts"


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request as the sampler sees it, with parts of another one."""

    request: Request
    seed: int
    end_ids: frozenset[int]


def _with_params(live: Any, params: SamplingParams) -> _Asked:
    return _Asked(replace(live.request, params=params), live.seed, live.end_ids)


@fault(
    "parameter-row-shifted",
    "A request is sampled with its neighbour's parameters",
    imitates=("vllm#1309", "vllm#5639", "sarathi-serve#18"),
    group=ROWS,
)
def parameter_row_shifted() -> Mapping[str, Wrapper]:
    """Each row takes temperature, top_p, top_k, penalties and bias from the row before it."""

    def choose(healthy: Healthy, run: FaultRun) -> Healthy:
        def shifted(logits: Any, live: Any, choice: int, output: Sequence[int]) -> int:
            before = run.memory.get("before", live)
            run.memory["before"] = live
            if before.request.request_id == live.request.request_id:
                return int(healthy(logits, live, choice, output))
            if before.request.params != live.request.params:
                run.executed()
            return int(healthy(logits, _with_params(live, before.request.params), choice, output))

        return shifted

    return {"sampler.choose": choose}


@fault(
    "greedy-row-sampled",
    "A greedy request is sampled when a neighbour is",
    imitates=("TensorRT-LLM#1632", "FreeToken#471"),
    group=ROWS,
)
def greedy_row_sampled() -> Mapping[str, Wrapper]:
    """Temperature 0 counts as 1 in a row that follows one with a temperature above 0."""

    def choose(healthy: Healthy, run: FaultRun) -> Healthy:
        def heated(logits: Any, live: Any, choice: int, output: Sequence[int]) -> int:
            params = live.request.params
            hot_neighbour = run.memory.get("temperature", 0.0) > 0
            run.memory["temperature"] = params.temperature
            if params.temperature == 0 and hot_neighbour:
                run.executed()
                live = _with_params(live, replace(params, temperature=1.0))
            return int(healthy(logits, live, choice, output))

        return heated

    return {"sampler.choose": choose}


@fault(
    "greedy-when-batched",
    "Sampling parameters are ignored in a batch",
    imitates=("aprender#2027",),
    group=ROWS,
)
def greedy_when_batched() -> Mapping[str, Wrapper]:
    """A request that has neighbours is decoded greedily, whatever its temperature."""

    def choose(healthy: Healthy, run: FaultRun) -> Healthy:
        def greedy(logits: Any, live: Any, choice: int, output: Sequence[int]) -> int:
            before = run.memory.get("id")
            run.memory["id"] = live.request.request_id
            params = live.request.params
            if before not in (None, live.request.request_id) and params.temperature > 0:
                run.executed()
                live = _with_params(live, replace(params, temperature=0.0))
            return int(healthy(logits, live, choice, output))

        return greedy

    return {"sampler.choose": choose}


@fault(
    "bias-leaks",
    "A logit bias stays on for the next request",
    imitates=("vllm#22896", "tpu-inference#1563"),
    group=ROWS,
)
def bias_leaks() -> Mapping[str, Wrapper]:
    """A row without logit bias takes that of the row before it."""

    def biased(healthy: Healthy, run: FaultRun) -> Healthy:
        def leaking(row: Any, params: SamplingParams) -> Any:
            left, run.memory["bias"] = run.memory.get("bias"), params.logit_bias
            if left and not params.logit_bias:
                run.executed()
                params = replace(params, logit_bias=left)
            return healthy(row, params)

        return leaking

    return {"sampler.biased": biased}


@fault(
    "penalty-counts-prompt",
    "Presence and frequency penalties count the prompt",
    imitates=("vllm-metal#69", "vllm#5349"),
    group=ROWS,
)
def penalty_counts_prompt() -> Mapping[str, Wrapper]:
    """The penalties on repeated output also punish tokens that only the prompt holds."""

    def penalised(healthy: Healthy, run: FaultRun) -> Healthy:
        def counting(logits: Any, params: Any, prompt: Sequence[int], out: Sequence[int]) -> Any:
            if params.presence_penalty or params.frequency_penalty:
                run.executed()
                out = [*prompt, *out]
            return healthy(logits, params, prompt, out)

        return counting

    return {"sampler.penalised": penalised}


@fault(
    "penalty-sees-stale-output",
    "Penalties miss the newest token",
    imitates=("vllm#27878", "vllm-ascend#7785"),
    group=ROWS,
)
def penalty_sees_stale_output() -> Mapping[str, Wrapper]:
    """The penalties are computed from the output as it was one step ago."""

    def penalised(healthy: Healthy, run: FaultRun) -> Healthy:
        def stale(logits: Any, params: Any, prompt: Sequence[int], out: Sequence[int]) -> Any:
            wants = (params.presence_penalty, params.frequency_penalty)
            if out and (any(wants) or params.repetition_penalty != 1.0):
                run.executed()
            return healthy(logits, params, prompt, out[:-1])

        return stale

    return {"sampler.penalised": penalised}


@fault(
    "top-p-cut-short",
    "top_p drops the token that crosses the threshold",
    imitates=("vllm#14301",),
    group=ROWS,
)
def top_p_cut_short() -> Mapping[str, Wrapper]:
    """The nucleus ends before the token with which it reaches top_p."""

    def candidates(healthy: Healthy, run: FaultRun) -> Healthy:
        def short(row: Any, params: SamplingParams) -> Any:
            kept = healthy(row, params)
            allowed = kept.nonzero()[0]
            if params.top_p < 1.0 and len(allowed) > 1:
                run.executed()
                kept = kept.copy()
                kept[min(allowed, key=lambda token: (kept[token], -token))] = 0.0
            return kept

        return short

    return {"sampler.candidates": candidates}


@fault(
    "shared-generator",
    "All requests draw from one generator",
    imitates=("vllm#51226", "vllm#17524"),
    group=SEEDS,
)
def shared_generator() -> Mapping[str, Wrapper]:
    """Random numbers come from one stream, so that each draw moves everybody else's."""

    def draw(healthy: Healthy, run: FaultRun) -> Healthy:
        stream = random.Random(0)

        def from_stream(seed: int, choice: int, position: int) -> float:
            run.executed()
            return stream.random()

        return from_stream

    return {"sampler.draw": draw}


@fault(
    "choices-share-draws",
    "All choices of a request draw the same numbers",
    imitates=("vllm#11898",),
    group=SEEDS,
)
def choices_share_draws() -> Mapping[str, Wrapper]:
    """The draw leaves out the number of the choice: n answers are one answer n times."""

    def draw(healthy: Healthy, run: FaultRun) -> Healthy:
        def same(seed: int, choice: int, position: int) -> float:
            if choice:
                run.executed()
            return float(healthy(seed, 0, position))

        return same

    return {"sampler.draw": draw}


@fault(
    "draw-repeats",
    "Every token of a request is drawn with the same number",
    imitates=("vllm#6449",),
    group=SEEDS,
)
def draw_repeats() -> Mapping[str, Wrapper]:
    """The generator is seeded anew for every token: the draw leaves out the position."""

    def draw(healthy: Healthy, run: FaultRun) -> Healthy:
        def repeating(seed: int, choice: int, position: int) -> float:
            run.executed()
            return float(healthy(seed, choice, 0))

        return repeating

    return {"sampler.draw": draw}


@fault(
    "min-tokens-off-by-one",
    "min_tokens ends one token early",
    imitates=("vllm#46243",),
    group=LIMITS,
)
def min_tokens_off_by_one() -> Mapping[str, Wrapper]:
    """The text may end with its ``min_tokens``-th token instead of the one after."""

    def held_open(healthy: Healthy, run: FaultRun) -> Healthy:
        def early(row: Any, params: Any, prompt: Any, out: Any, ends: Any) -> Any:
            if params.min_tokens and len(out) == params.min_tokens - 1:
                run.executed()
                return row
            return healthy(row, params, prompt, out, ends)

        return early

    return {"sampler.held_open": held_open}


@fault(
    "min-tokens-counts-prompt",
    "min_tokens counts the prompt",
    imitates=("TensorRT-LLM#12358",),
    group=LIMITS,
)
def min_tokens_counts_prompt() -> Mapping[str, Wrapper]:
    """A request whose prompt is longer than ``min_tokens`` may end at once."""

    def held_open(healthy: Healthy, run: FaultRun) -> Healthy:
        def counting(row: Any, params: Any, prompt: Any, out: Any, ends: Any) -> Any:
            if len(out) < params.min_tokens <= len(out) + len(prompt):
                run.executed()
            return healthy(row, params, prompt, [*prompt, *out], ends)

        return counting

    return {"sampler.held_open": held_open}
