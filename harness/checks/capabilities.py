"""What a server can do, found by asking it: never assumed from its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Capability(StrEnum):
    """A feature that some checks need; the value is how a report calls it."""

    TOKEN_ID_PROMPTS = "prompts as token ids"
    TOKEN_IDS_OUT = "token ids in the answer"
    LOGPROBS = "logprobs"
    PROMPT_LOGPROBS = "prompt logprobs or echo with logprobs"
    SEED = "seed"
    IGNORE_EOS = "ignore_eos"
    MIN_TOKENS = "min_tokens"
    STOP = "stop strings"
    STOP_TOKEN_IDS = "stop_token_ids"
    N = "n > 1"
    SAME_N = "n > 1 with one right answer"
    LOGIT_BIAS = "logit_bias"
    TOP_K = "top_k"
    MIN_P = "min_p"
    REPETITION_PENALTY = "repetition_penalty"
    CACHE_SALT = "cache_salt"
    USAGE = "usage"
    CACHED_TOKENS = "cached_tokens in usage"
    METRICS = "a known metrics dialect"
    CONTEXT_LIMIT = "a stated context limit"
    KNOWN_ANSWERS = "answers known in advance (probe or reference oracle)"
    NATURAL_ENDINGS = "a probe that ends by itself (variant eos)"
    RAW_HTTP = "a target reached over HTTP"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities found, and for each missing one the server's own words where it gave any.

    ``same_n`` are the fields that make every choice of a request the one right answer: none where
    greedy requests may have several, those of a draw from one token where they may not (vLLM).
    """

    has: frozenset[Capability] = frozenset()
    why_not: Mapping[Capability, str] = field(default_factory=dict)
    context_limit: int | None = None
    page_size: int | None = None
    metrics_dialect: str | None = None
    same_n: Mapping[str, Any] = field(default_factory=dict)

    def __contains__(self, capability: Capability) -> bool:
        return capability in self.has

    def choices(self, count: int) -> dict[str, Any]:
        """The fields that ask for ``count`` choices, each the right answer; needs ``SAME_N``."""
        return {"n": count, **self.same_n}

    def lacking(self, needs: tuple[Capability, ...]) -> str | None:
        """One sentence about the first needed capability that is missing; None if none is."""
        for capability in needs:
            if capability not in self.has:
                reason = self.why_not.get(capability)
                return f"needs {capability.value}" + (f": {reason}" if reason else "")
        return None
