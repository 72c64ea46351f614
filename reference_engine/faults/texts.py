"""Faults of the text that a server makes of tokens: stop strings, characters, lengths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from reference_engine.faults.seam import FaultRun, Healthy, Wrapper, fault

_STREAM = "stop strings, UTF-8 and stream chunks"
_LENGTH = "length and count contracts"


@fault(
    "stop-text-leaked",
    "Text that may begin a stop string is shown at once",
    imitates=("vllm#3574", "TGI#1254"),
    group=_STREAM,
)
def stop_text_leaked() -> Mapping[str, Wrapper]:
    """Nothing is held back: the first tokens of a stop string have been sent when its last one
    arrives. The answer still ends there.
    """

    def opened(healthy: Healthy, run: FaultRun) -> Healthy:
        def leaky(*stops: Any, **options: Any) -> Any:
            stream = healthy(*stops, **options)
            _leak(stream, run)
            return stream

        return leaky

    return {"server_texts.open": opened}


def _leak(stream: Any, run: FaultRun) -> None:
    """Show what the stream holds back, and do not show it again."""
    push, finish = stream.push, stream.finish
    shown_early = 0

    def late(delta: Any) -> str:
        nonlocal shown_early
        known = min(shown_early, len(delta.text))
        shown_early -= known
        return str(delta.text[known:])

    def leaky_push(token_id: int) -> Any:
        nonlocal shown_early
        delta = push(token_id)
        text = late(delta)
        if delta.stop is None and stream.held_chars > shown_early:
            text += stream.held_text[shown_early:]
            shown_early = stream.held_chars
            run.executed()
        return replace(delta, text=text)

    def leaky_finish() -> Any:
        delta = finish()
        return replace(delta, text=late(delta))

    stream.push, stream.finish = leaky_push, leaky_finish


@fault(
    "stop-in-one-token",
    "A stop string is only found inside one token",
    imitates=("mlx-knife#68", "vllm#2577"),
    group=_STREAM,
)
def stop_in_one_token() -> Mapping[str, Wrapper]:
    """The text of each token is searched by itself, so a stop string that straddles two tokens is
    never seen.
    """

    def opened(healthy: Healthy, run: FaultRun) -> Healthy:
        def forgetful(*stops: Any, **options: Any) -> Any:
            stream = healthy(*stops, **options)

            def nothing_unsafe(text: str) -> int:
                run.executed()
                return 0

            stream.unsafe_suffix = nothing_unsafe
            return stream

        return forgetful

    return {"server_texts.open": opened}


@fault(
    "utf8-split",
    "Each token is decoded by itself",
    imitates=("llama.cpp#4036", "mlc-llm#804", "mlx-vlm#1076"),
    group=_STREAM,
)
def utf8_split() -> Mapping[str, Wrapper]:
    """A character whose bytes come in several tokens becomes several replacement characters."""

    def decoder(healthy: Healthy, run: FaultRun) -> Healthy:
        def alone(skip_special_tokens: bool) -> Any:
            inner = healthy(skip_special_tokens)
            push = inner.push

            def push_alone(token_id: int) -> str:
                text = str(push(token_id))
                rest = inner.flush()
                if rest:
                    run.executed()
                return text + str(rest)

            inner.push = push_alone
            return inner

        return alone

    return {"server_texts.decoder": decoder}


@fault(
    "stop-before-min-tokens",
    "A stop string ends the answer before min_tokens",
    imitates=("vllm#21987",),
    group=_LENGTH,
)
def stop_before_min_tokens() -> Mapping[str, Wrapper]:
    """``min_tokens`` holds the end-of-sequence token back, but not stop strings."""

    def opened(healthy: Healthy, run: FaultRun) -> Healthy:
        def hasty(stops: Any = (), *, min_tokens: int = 0, **options: Any) -> Any:
            if stops and min_tokens:
                run.executed()
            return healthy(stops, min_tokens=0, **options)

        return hasty

    return {"server_texts.open": opened}


@fault(
    "delta-repeated",
    "Now and then a delta is sent twice and the next one is lost",
    imitates=("TensorRT-LLM#4923",),
    group=_STREAM,
)
def delta_repeated() -> Mapping[str, Wrapper]:
    """Every seventh delta of a choice carries the text of the one before it."""

    def opened(healthy: Healthy, run: FaultRun) -> Healthy:
        def stuttering(*stops: Any, **options: Any) -> Any:
            stream = healthy(*stops, **options)
            push = stream.push
            last: Any = None
            pushed = 0

            def stutter(token_id: int) -> Any:
                nonlocal last, pushed
                delta = push(token_id)
                pushed += 1
                if pushed % 7 == 0 and last is not None and delta.text and last.text != delta.text:
                    run.executed()
                    delta = replace(delta, text=last.text)
                last = delta
                return delta

            stream.push = stutter
            return stream

        return stuttering

    return {"server_texts.open": opened}
