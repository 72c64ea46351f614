"""The chunks of a streamed answer, as SSE events in bytes.

Every chunk of an answer begins with the same few fields, so those are encoded once; a token then
costs one small JSON object.
"""

from __future__ import annotations

from typing import Any

import orjson

from reference_engine.server.answer_shape import AnswerShape
from reference_engine.server.answers import Answers
from reference_engine.server.generation import ChoiceDelta, UsageCount


class Chunks:
    """Writes the events of one answer; ``usage`` is read when counts are due."""

    def __init__(self, answers: Answers, shape: AnswerShape, usage: UsageCount) -> None:
        head = answers.envelope(shape.plan.response_id, shape.chunk_object)
        self._answers = answers
        self._head = b"data: " + orjson.dumps(head)[:-1] + b',"choices":['
        self._shape = shape
        self._usage = usage
        self._prompt_extra_due = True

    def chunk(self, choice: dict[str, Any]) -> bytes:
        """One event with one choice."""
        return self._head + orjson.dumps(choice) + b"]" + self._tail()

    def delta(self, delta: ChoiceDelta) -> bytes:
        """One event for one token of one choice."""
        choice = self._answers.chunk_choice(self._shape, delta)
        if not self._prompt_extra_due:
            return self.chunk(choice)
        self._prompt_extra_due = False
        extra = self._shape.whole_extra(((delta,),))
        if not extra:
            return self.chunk(choice)
        fields = b"]," + orjson.dumps(extra)[1:-1]
        return self._head + orjson.dumps(choice) + fields + self._tail()

    def ending(self) -> bytes:
        """The chunk with the token counts, if the client asked for it, and the terminator."""
        done = self._answers.terminator()
        if not self._shape.options.include_usage:
            return done
        return self._head + b'],"usage":' + self._counts() + b"}\n\n" + done

    def _tail(self) -> bytes:
        options = self._shape.options
        if options.continuous_usage:
            return b',"usage":' + self._counts() + b"}\n\n"
        return b',"usage":null}\n\n' if options.include_usage else b"}\n\n"

    def _counts(self) -> bytes:
        return orjson.dumps(self._answers.usage(self._usage))
