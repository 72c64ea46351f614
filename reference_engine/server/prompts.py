"""The four forms of a completions prompt: text, texts, token ids, lists of token ids."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reference_engine.server.errors import ApiError
from reference_engine.server.fields import wrong
from reference_engine.server.generation import Prompt
from reference_engine.server.sampling_fields import MAX_TOKEN_ID, check_vocabulary
from reference_engine.server.text_codec import TextCodec

_SHORT_TEXT_CHARS = 4096
_RULE = "a string, a list of strings, a list of token ids or a list of lists of token ids"


@dataclass(frozen=True, slots=True)
class PromptForm:
    """The kind of the ``prompt`` field; reads any of the four forms into a list of prompts."""

    max_prompts: int

    def read(self, value: Any, name: str) -> tuple[str | tuple[int, ...], ...]:
        """One entry a prompt: its text or its ids."""
        if isinstance(value, str):
            return (_text(value, name),)
        if not isinstance(value, list):
            raise wrong(name, _RULE, value)
        if not value:
            raise ApiError(f"{name} is empty", param=name, code="invalid_value")
        if isinstance(value[0], int | float):
            return (_ids(value, name),)
        if len(value) > self.max_prompts:
            raise wrong(name, f"at most {self.max_prompts} prompts", f"{len(value)} prompts")
        if isinstance(value[0], str):
            return tuple(_text(v, f"{name}[{i}]") for i, v in enumerate(value))
        return tuple(_ids(v, f"{name}[{i}]") for i, v in enumerate(value))

    def schema(self) -> dict[str, Any]:
        """Any of the four."""
        text = {"type": "string", "minLength": 1}
        ids = {
            "type": "array",
            "items": {"type": "integer", "minimum": 0, "maximum": MAX_TOKEN_ID},
            "minItems": 1,
        }
        many = {"minItems": 1, "maxItems": self.max_prompts}
        return {
            "anyOf": [
                text,
                {"type": "array", "items": text, **many},
                ids,
                {"type": "array", "items": ids, **many},
            ]
        }


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise wrong(name, "a string like the others", value)
    if not value:
        raise ApiError(f"{name} is empty", param=name, code="invalid_value")
    return value


def _ids(value: Any, name: str) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise wrong(name, _RULE, value)
    if not value:
        raise ApiError(f"{name} is empty", param=name, code="invalid_value")
    # Whole-list tests first: they run in C, and a body may hold a million ids.
    if set(map(type, value)) == {int} and min(value) >= 0 and max(value) <= MAX_TOKEN_ID:
        return tuple(value)
    index = next(i for i, v in enumerate(value) if not _is_token_id(v))
    raise wrong(f"{name}[{index}]", "a token id", value[index])


def _is_token_id(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_TOKEN_ID


async def encode_text(codec: TextCodec, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
    """Tokenise; long texts in a thread, so that other streams go on meanwhile."""
    if len(text) <= _SHORT_TEXT_CHARS:
        return codec.encode(text, add_special_tokens=add_special_tokens)
    return await asyncio.to_thread(codec.encode, text, add_special_tokens=add_special_tokens)


async def encode_prompts(
    codec: TextCodec,
    values: Sequence[str | tuple[int, ...]],
    name: str,
    *,
    add_special_tokens: bool,
) -> tuple[Prompt, ...]:
    """Prompts with ids, checked against the vocabulary. Raises ApiError."""
    prompts = []
    for value in values:
        if isinstance(value, str):
            ids = await encode_text(codec, value, add_special_tokens=add_special_tokens)
            if not ids:
                raise ApiError(f"{name} has no tokens", param=name, code="invalid_value")
            prompts.append(Prompt(ids, value))
        else:
            prompts.append(Prompt(value))
        check_vocabulary(prompts[-1].ids, codec.vocab_size, name)
    return tuple(prompts)
