"""The parts that every answer has: the envelope and the ``usage`` object."""

from __future__ import annotations

import time
from typing import Any

from reference_engine.server.generation import UsageCount
from reference_engine.server.served_model import ServedModel


def envelope(served: ServedModel, response_id: str, object_name: str) -> dict[str, Any]:
    """The fields before ``choices``."""
    return {
        "id": response_id,
        "object": object_name,
        "created": int(time.time()),
        "model": served.name,
    }


def usage_json(usage: UsageCount) -> dict[str, Any]:
    """Token counts as the OpenAI API shapes them."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
