"""Faults of the answers as they are written: counts, endings, terminators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from reference_engine.faults.seam import FaultRun, Healthy, Wrapper, fault

_STREAM = "stop strings, UTF-8 and stream chunks"
_LENGTH = "length and count contracts"


def _written(changed: Callable[[Any, FaultRun], Any]) -> Mapping[str, Wrapper]:
    """Change each delta as it is written, in chunks and in whole answers."""

    def chunk_choice(healthy: Healthy, run: FaultRun) -> Healthy:
        return lambda shape, delta: healthy(shape, changed(delta, run))

    def whole_choice(healthy: Healthy, run: FaultRun) -> Healthy:
        return lambda shape, deltas: healthy(shape, [changed(d, run) for d in deltas])

    return {
        "server_answers.chunk_choice": chunk_choice,
        "server_answers.whole_choice": whole_choice,
    }


@fault(
    "usage-without-last-token",
    "Usage leaves out the last token",
    imitates=("vllm#8625",),
    group=_LENGTH,
)
def usage_without_last_token() -> Mapping[str, Wrapper]:
    """The count is taken before the step that ends the answer is added."""

    def usage(healthy: Healthy, run: FaultRun) -> Healthy:
        def short(count: Any) -> Any:
            if count.completion_tokens == 0:
                return healthy(count)
            run.executed()
            return healthy(replace(count, completion_tokens=count.completion_tokens - 1))

        return short

    return {"server_answers.usage": usage}


@fault(
    "usage-of-one-choice",
    "Usage counts one choice of several",
    imitates=("vllm#9357", "vllm#8625"),
    group=_LENGTH,
)
def usage_of_one_choice() -> Mapping[str, Wrapper]:
    """With n > 1 or several prompts, completion_tokens is that of a single choice."""

    def usage(healthy: Healthy, run: FaultRun) -> Healthy:
        def single(count: Any) -> Any:
            if count.choices < 2:
                return healthy(count)
            run.executed()
            tokens = count.completion_tokens // count.choices
            return healthy(replace(count, completion_tokens=tokens))

        return single

    return {"server_answers.usage": usage}


@fault(
    "finish-reason-on-every-chunk",
    "Every chunk carries a finish reason",
    imitates=("mlc-llm#1142", "mlc-llm#804"),
    group=_STREAM,
)
def finish_reason_on_every_chunk() -> Mapping[str, Wrapper]:
    """Chunks in mid-stream say ``stop``, as if each were the last."""

    def chunk_choice(healthy: Healthy, run: FaultRun) -> Healthy:
        def ending(shape: Any, delta: Any) -> Any:
            if delta.finish_reason is None:
                run.executed()
                delta = replace(delta, finish_reason="stop")
            return healthy(shape, delta)

        return ending

    return {"server_answers.chunk_choice": chunk_choice}


@fault(
    "finish-reason-wrong",
    "An answer cut by max_tokens says it stopped by itself",
    imitates=("optimum-neuron#470",),
    group=_LENGTH,
)
def finish_reason_wrong() -> Mapping[str, Wrapper]:
    """``length`` is told as ``stop``."""

    def changed(delta: Any, run: FaultRun) -> Any:
        if delta.finish_reason != "length":
            return delta
        run.executed()
        return replace(delta, finish_reason="stop")

    return _written(changed)


@fault(
    "terminator-missing",
    "The stream ends without its terminator",
    imitates=("mlx-lm#1129", "transformers#39149"),
    group=_STREAM,
)
def terminator_missing() -> Mapping[str, Wrapper]:
    """The connection closes after the last chunk, without ``[DONE]``: a client cannot tell a whole
    answer from one that broke off.
    """

    def terminator(healthy: Healthy, run: FaultRun) -> Healthy:
        def silent() -> bytes:
            run.executed()
            return b""

        return silent

    return {"server_answers.terminator": terminator}


@fault(
    "last-delta-lost",
    "The text of the last token is not streamed",
    imitates=("vllm#41691", "TensorRT-LLM#14312"),
    group=_STREAM,
)
def last_delta_lost() -> Mapping[str, Wrapper]:
    """The chunk with the finish reason has no text, though its token has."""

    def chunk_choice(healthy: Healthy, run: FaultRun) -> Healthy:
        def lost(shape: Any, delta: Any) -> Any:
            if delta.finish_reason is not None and delta.text:
                run.executed()
                delta = replace(delta, text="")
            return healthy(shape, delta)

        return lost

    return {"server_answers.chunk_choice": chunk_choice}


@fault(
    "cumulative-text",
    "Deltas carry the whole text so far",
    imitates=("TensorRT-LLM#1414", "tensorrtllm_backend#332"),
    group=_STREAM,
)
def cumulative_text() -> Mapping[str, Wrapper]:
    """Each chunk repeats what came before it."""

    def chunk_choice(healthy: Healthy, run: FaultRun) -> Healthy:
        def growing(shape: Any, delta: Any) -> Any:
            so_far = run.memory.setdefault(shape.plan.response_id, {})
            text = so_far.get(delta.index, "") + delta.text
            so_far[delta.index] = text
            if text != delta.text:
                run.executed()
            if delta.finish_reason is not None:
                so_far.pop(delta.index)
            return healthy(shape, replace(delta, text=text))

        return growing

    return {"server_answers.chunk_choice": chunk_choice}


@fault(
    "prompt-logprobs-off-by-one",
    "Prompt logprobs belong to the neighbouring token",
    imitates=("vllm#5846", "vllm#4139"),
    group="misaligned logprobs",
)
def prompt_logprobs_off_by_one() -> Mapping[str, Wrapper]:
    """The rows of the prompt are one place early, and the null is at the end."""

    def changed(delta: Any, run: FaultRun) -> Any:
        rows = delta.prompt_logprobs
        if not rows or len(rows) < 2:
            return delta
        run.executed()
        return replace(delta, prompt_logprobs=(*rows[1:], None))

    return _written(changed)
