"""The raw row of one request: all that any metric needs, as JSON, and back again unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.transcript import ChoiceTranscript, Ending, RequestTranscript, TokenChunk, Usage

_PLAIN = (
    "key", "t_due_s", "t_sent_s", "t_end_s", "t_connect_s", "status", "response_id", "error",
    "terminators", "usages_seen", "retries", "text_tokens",
    "planned_prompt_tokens", "planned_output_tokens", "closed_without_done",
)  # fmt: skip


def to_row(request: RequestTranscript) -> dict[str, Any]:
    """The row. A chunk is ``[t_s, tokens]``; texts and ids are not kept."""
    row: dict[str, Any] = {name: getattr(request, name) for name in _PLAIN}
    row["ending"] = request.ending.value
    if request.usage is not None:
        row["usage"] = {
            "prompt_tokens": request.usage.prompt_tokens,
            "completion_tokens": request.usage.completion_tokens,
            "cached_tokens": request.usage.cached_tokens,
        }
    row["choices"] = {
        str(index): {
            "chunks": [[c.t_s, c.tokens] for c in choice.chunks],
            "finish_reasons": choice.finish_reasons,
        }
        for index, choice in request.choices.items()
    }
    return row


def from_row(row: Mapping[str, Any]) -> RequestTranscript:
    """Read what `to_row` wrote. Raises ValueError with one sentence."""
    if not isinstance(row, Mapping):
        raise ValueError("not a request row: a JSON object is expected")
    try:
        request = RequestTranscript(row["key"], Ending(row["ending"]), row["t_due_s"])
        for name in _PLAIN:
            setattr(request, name, row.get(name, getattr(request, name)))
        if row.get("usage") is not None:
            request.usage = Usage(**row["usage"])
        for index, choice in row.get("choices", {}).items():
            chunks = [TokenChunk(float(t_s), tokens=tokens) for t_s, tokens in choice["chunks"]]
            request.choices[int(index)] = ChoiceTranscript(chunks, list(choice["finish_reasons"]))
    except KeyError as error:
        raise ValueError(f"not a request row: it has no {error.args[0]!r}") from None
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"not a request row: {error}") from None
    return request
