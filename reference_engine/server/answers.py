"""The JSON parts of answers that both endpoints and both ways of answering have in common.

All answers of a server pass through one `Answers`; that is where a planted fault can spoil them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from reference_engine.server.answer_shape import AnswerShape
from reference_engine.server.generation import ChoiceDelta, UsageCount

DONE = b"data: [DONE]\n\n"


class Answers:
    """Writes answers of one served model. Keeps nothing between answers."""

    def __init__(self, model_name: str) -> None:
        self._model_name = model_name

    def envelope(self, response_id: str, object_name: str) -> dict[str, Any]:
        """The fields before ``choices``."""
        return {
            "id": response_id,
            "object": object_name,
            "created": int(time.time()),
            "model": self._model_name,
        }

    def usage(self, usage: UsageCount) -> dict[str, Any]:
        """Token counts as the OpenAI API shapes them."""
        return {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        }

    def chunk_choice(self, shape: AnswerShape, delta: ChoiceDelta) -> dict[str, Any]:
        """The choice object of one chunk."""
        return shape.chunk_choice(delta)

    def whole_choice(self, shape: AnswerShape, deltas: Sequence[ChoiceDelta]) -> dict[str, Any]:
        """The choice object of an answer in one piece."""
        return shape.whole_choice(deltas)

    def terminator(self) -> bytes:
        """What ends a stream."""
        return DONE
