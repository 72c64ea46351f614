"""From the JSON of an OpenAI-compatible server to a `RequestTranscript`.

Reads both endpoints, and the places where servers put token ids: ``token_ids`` of a choice or
delta (vLLM), ``id`` of a logprob entry (llama.cpp), ``token_id:N`` as a token's text (vLLM's
``return_tokens_as_token_ids``). What is not told stays None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.transcript import ChoiceTranscript, RequestTranscript, TokenChunk, Usage


class MalformedAnswer(Exception):
    """Valid JSON that is not the API's shape; the message names the field."""


class ServerReportedError(Exception):
    """An error object where an answer should be; the message is the server's.

    ``refuses`` says that its code is 4xx: the request was wrong, not the server.
    """

    def __init__(self, error: Any) -> None:
        super().__init__(error_message(error))
        code = error.get("code") if isinstance(error, Mapping) else None
        self.refuses = isinstance(code, int) and 400 <= code < 500


def read_document(document: Any, t_s: float, into: RequestTranscript) -> int:
    """Add one event of a stream, or one whole answer, to the transcript.

    Returns how many token-bearing chunks it brought. Raises MalformedAnswer and
    ServerReportedError.
    """
    if not isinstance(document, dict):
        raise MalformedAnswer(f"a JSON object expected, got {_short(document)}")
    if (error := document.get("error")) or document.get("object") == "error":
        raise ServerReportedError(error or document)
    if isinstance(response_id := document.get("id"), str) and into.response_id is None:
        into.response_id = response_id
    choices = document.get("choices")
    if choices is None and "usage" not in document:
        raise MalformedAnswer(f"neither choices nor usage in {_short(document)}")
    if not isinstance(choices, list | None):
        raise MalformedAnswer(f"choices is {_short(choices)}, not a list")
    before = into.usage.completion_tokens if into.usage else 0
    if document.get("usage") is not None:
        into.usage = _usage(document["usage"])
        into.usages_seen += 1
    _note_prompt(document, into)
    gained = into.usage.completion_tokens - before if document.get("usage") and into.usage else None
    alone = len(choices or ()) == 1 and into.choices.keys() <= {0}
    bearing = 0
    for choice in choices or ():
        bearing += _read_choice(choice, t_s, into, gained if alone else None)
    return bearing


def error_message(error: Any) -> str:
    """The sentence in an OpenAI error object, or whatever stands in its place, shortened."""
    if isinstance(error, Mapping):
        message = error.get("message") or error.get("detail") or error.get("error")
        if isinstance(message, Mapping):
            return error_message(message)
        return _short(message if message is not None else error)
    return _short(error)


def _read_choice(choice: Any, t_s: float, into: RequestTranscript, gained: int | None) -> int:
    if not isinstance(choice, dict):
        raise MalformedAnswer(f"a choice is {_short(choice)}, not an object")
    index = choice.get("index", 0)
    if not isinstance(index, int):
        raise MalformedAnswer(f"a choice's index is {_short(index)}")
    _note_prompt(choice, into)
    entry = into.choices.setdefault(index, ChoiceTranscript())
    chunk = _token_chunk(choice, t_s, gained)
    if chunk is not None:
        entry.chunks.append(chunk)
    reason = choice.get("finish_reason")
    if reason is not None:
        entry.finish_reasons.append(str(reason))
    return int(chunk is not None)


def _token_chunk(choice: dict[str, Any], t_s: float, gained: int | None) -> TokenChunk | None:
    """The chunk, or None where no generated token shows: a role, an end, an empty keep-alive."""
    text, inner = _text(choice)
    ids = _token_ids(choice.get("token_ids", inner.get("token_ids")))
    logprob_ids, logprobs, top = _logprobs(choice.get("logprobs"))
    if ids is None and logprob_ids and (not text or len(logprob_ids) > 0):
        ids = logprob_ids
    if not text and not ids and not logprobs:
        return None
    told = len(ids) if ids is not None else len(logprobs) if logprobs is not None else None
    if told is None and gained is not None and gained > 0:
        told = gained
    return TokenChunk(t_s, text, ids, logprobs, top, told)


def _text(choice: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The text of a completion choice, a chat message or a delta, and the object that held it."""
    if "text" in choice:
        return _string(choice["text"], "text"), choice
    inner = choice.get("delta") or choice.get("message") or {}
    if not isinstance(inner, dict):
        raise MalformedAnswer(f"a delta is {_short(inner)}, not an object")
    reasoning = inner.get("reasoning_content") or inner.get("reasoning")
    return _string(reasoning, "reasoning") + _string(inner.get("content"), "content"), inner


def _string(value: Any, name: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MalformedAnswer(f"{name} is {_short(value)}, not a string")
    return value


def _token_ids(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(i, int) for i in value):
        raise MalformedAnswer(f"token_ids is {_short(value)}, not a list of integers")
    return tuple(value)


def _logprobs(
    value: Any,
) -> tuple[
    tuple[int, ...] | None, tuple[float, ...] | None, tuple[Mapping[str, float], ...] | None
]:
    """Ids, logprobs and top logprobs of either form; each None where it isn't told."""
    if value is None:
        return None, None, None
    if not isinstance(value, dict):
        raise MalformedAnswer(f"logprobs is {_short(value)}, not an object")
    try:
        if isinstance(content := value.get("content"), list):
            return _chat_logprobs(content)
        numbers = value.get("token_logprobs")
        if numbers is None:
            return None, None, None
        names = value.get("tokens") or []
        top = value.get("top_logprobs")
        return (
            _ids_from_names(names),
            tuple(float("nan") if n is None else float(n) for n in numbers),
            None if top is None else tuple(dict(t or {}) for t in top),
        )
    except (TypeError, KeyError, ValueError, AttributeError):
        raise MalformedAnswer(f"logprobs of an unknown shape: {_short(value)}") from None


def _chat_logprobs(
    content: list[dict[str, Any]],
) -> tuple[
    tuple[int, ...] | None, tuple[float, ...] | None, tuple[Mapping[str, float], ...] | None
]:
    ids = tuple(e["id"] for e in content if isinstance(e.get("id"), int))
    known = ids if ids and len(ids) == len(content) else None
    if known is None:
        known = _ids_from_names([e.get("token", "") for e in content])
    logprobs = tuple(float(e["logprob"]) for e in content)
    top = tuple({t["token"]: t["logprob"] for t in e.get("top_logprobs") or ()} for e in content)
    return known, logprobs, top


def _ids_from_names(names: list[Any]) -> tuple[int, ...] | None:
    if not names or not all(isinstance(n, str) and n.startswith("token_id:") for n in names):
        return None
    return tuple(int(n.removeprefix("token_id:")) for n in names)


def _usage(value: Any) -> Usage:
    try:
        details = value.get("prompt_tokens_details") or {}
        return Usage(
            int(value["prompt_tokens"]),
            int(value.get("completion_tokens") or 0),
            details.get("cached_tokens"),
        )
    except (TypeError, KeyError, ValueError, AttributeError):
        raise MalformedAnswer(f"usage of an unknown shape: {_short(value)}") from None


def _note_prompt(source: dict[str, Any], into: RequestTranscript) -> None:
    if (ids := source.get("prompt_token_ids")) is not None:
        into.prompt_token_ids = _token_ids(ids)
    if (logprobs := source.get("prompt_logprobs")) is not None:
        into.prompt_logprobs = list(logprobs)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 200 else text[:197] + "..."
