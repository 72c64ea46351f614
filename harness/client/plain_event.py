"""The quick way to read the commonest event: one choice, one piece of text, nothing else.

Nearly all events of a stream look alike, so their cost is the client's cost. A typed decoder builds
only the fields that matter and says no to anything out of the ordinary (a finish reason, usage,
logprobs, an error, several choices), which then goes the long way through `read_document`. Both
ways give the same chunk for the same bytes; a property test holds them together.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from harness.transcript import TokenChunk

_Object = Literal["text_completion", "chat.completion.chunk"]


class _Delta(msgspec.Struct):
    content: str | None = None
    token_ids: list[int] | None = None
    # Declared so that a value other than null is refused:
    reasoning: None = None
    reasoning_content: None = None


class _Choice(msgspec.Struct):
    index: Literal[0]
    text: str | None = None
    delta: _Delta | None = None
    token_ids: list[int] | None = None
    finish_reason: None = None
    logprobs: None = None
    message: None = None
    prompt_token_ids: None = None
    prompt_logprobs: None = None


class _Event(msgspec.Struct):
    object: _Object
    choices: list[_Choice]
    usage: None = None
    error: None = None
    prompt_token_ids: None = None
    prompt_logprobs: None = None


_decode: Final = msgspec.json.Decoder(_Event).decode


def plain_chunk(t_s: float, data: memoryview) -> TokenChunk | None:
    """The chunk of choice 0 that ``data`` brings, or None if it must be read the long way."""
    try:
        choices = _decode(data).choices
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None
    if len(choices) != 1:
        return None
    choice = choices[0]
    ids = choice.token_ids
    text = choice.text
    if text is None:
        delta = choice.delta
        if delta is None:
            return None
        text = delta.content
        if ids is None:
            ids = delta.token_ids
    if not text or (choice.delta is not None and choice.text is not None):
        return None
    if ids is None:
        return TokenChunk(t_s, text)
    return TokenChunk(t_s, text, tuple(ids), None, None, len(ids))
