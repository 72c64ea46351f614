"""The chunks of a streamed answer, as SSE events in bytes.

Every chunk of an answer begins with the same few fields, so those are encoded once; a token then
costs one small JSON object.
"""

from __future__ import annotations

from typing import Any

import orjson

from reference_engine.server.answer_parts import envelope, usage_json
from reference_engine.server.answer_shape import AnswerShape
from reference_engine.server.generation import ChoiceDelta, UsageCount
from reference_engine.server.served_model import ServedModel


class Chunks:
    """Writes the events of one answer; ``usage`` is read when counts are due."""

    def __init__(self, served: ServedModel, shape: AnswerShape, usage: UsageCount) -> None:
        head = envelope(served, shape.plan.response_id, shape.chunk_object)
        self._head = b"data: " + orjson.dumps(head)[:-1] + b',"choices":['
        self._shape = shape
        self._usage = usage
        self._prompt_extra_due = True

    def chunk(self, choice: dict[str, Any]) -> bytes:
        """One event with one choice."""
        return self._head + orjson.dumps(choice) + b"]" + self._tail()

    def delta(self, delta: ChoiceDelta) -> bytes:
        """One event for one token of one choice."""
        choice = self._shape.chunk_choice(delta)
        if not self._prompt_extra_due:
            return self.chunk(choice)
        self._prompt_extra_due = False
        extra = self._shape.whole_extra(((delta,),))
        if not extra:
            return self.chunk(choice)
        fields = b"]," + orjson.dumps(extra)[1:-1]
        return self._head + orjson.dumps(choice) + fields + self._tail()

    def ending(self) -> bytes:
        """The chunk with the token counts, if the client asked for it; else nothing."""
        if not self._shape.options.include_usage:
            return b""
        return self._head + b'],"usage":' + orjson.dumps(usage_json(self._usage)) + b"}\n\n"

    def _tail(self) -> bytes:
        options = self._shape.options
        if options.continuous_usage:
            return b',"usage":' + orjson.dumps(usage_json(self._usage)) + b"}\n\n"
        return b',"usage":null}\n\n' if options.include_usage else b"}\n\n"
