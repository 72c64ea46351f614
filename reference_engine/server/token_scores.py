"""Log-probabilities in the three shapes of the API: completions, chat, and prompt_logprobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from reference_engine.request import TokenLogprobs
from reference_engine.server.text_codec import TextCodec

# JSON has no infinity; a token that cannot happen gets what vLLM gives it.
IMPOSSIBLE = -9999.0


def finite(logprob: float) -> float:
    """The number itself, or `IMPOSSIBLE` for a probability of 0."""
    return logprob if logprob > IMPOSSIBLE else IMPOSSIBLE


@dataclass(frozen=True, slots=True)
class TokenSpelling:
    """How tokens are written in logprobs: as text, or ``token_id:N`` when asked."""

    codec: TextCodec
    as_ids: bool = False

    def spell(self, token_id: int) -> str:
        """One token."""
        return f"token_id:{token_id}" if self.as_ids else self.codec.token_text(token_id)


@dataclass(slots=True)
class CompletionLogprobs:
    """The ``logprobs`` object of a completions choice: four lists of equal length."""

    spelling: TokenSpelling
    tokens: list[str] = field(default_factory=list)
    token_logprobs: list[float | None] = field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] = field(default_factory=list)
    text_offset: list[int] = field(default_factory=list)

    def add(self, token_id: int, scores: TokenLogprobs | None, text_offset: int) -> None:
        """One token; ``scores`` is None for the first token of a prompt, which has none."""
        self.tokens.append(self.spelling.spell(token_id))
        self.text_offset.append(text_offset)
        if scores is None:
            self.token_logprobs.append(None)
            self.top_logprobs.append(None)
            return
        self.token_logprobs.append(finite(scores.logprob))
        top = {self.spelling.spell(i): finite(p) for i, p in scores.top}
        # The chosen token is always there, as in the OpenAI API, even below the best k.
        top.setdefault(self.tokens[-1], finite(scores.logprob))
        self.top_logprobs.append(top)

    def to_json(self) -> dict[str, Any]:
        """The object."""
        return {
            "tokens": self.tokens,
            "token_logprobs": self.token_logprobs,
            "top_logprobs": self.top_logprobs,
            "text_offset": self.text_offset,
        }


def chat_logprob(spelling: TokenSpelling, scores: TokenLogprobs) -> dict[str, Any]:
    """One entry of a chat choice's ``logprobs.content``."""

    def entry(token_id: int, logprob: float) -> dict[str, Any]:
        return {
            "token": spelling.spell(token_id),
            "logprob": finite(logprob),
            "bytes": list(spelling.codec.token_bytes(token_id)),
        }

    top = [entry(i, p) for i, p in scores.top]
    return {**entry(scores.token_id, scores.logprob), "top_logprobs": top}


def prompt_scores(
    spelling: TokenSpelling, scores: Sequence[TokenLogprobs | None]
) -> list[dict[str, Any] | None]:
    """vLLM's ``prompt_logprobs``: one object a prompt token, keyed by token id; the first null."""
    return [None if s is None else _ranked(spelling, s) for s in scores]


def _ranked(spelling: TokenSpelling, scores: TokenLogprobs) -> dict[str, Any]:
    ranks = {token_id: rank for rank, (token_id, _) in enumerate(scores.top, start=1)}
    entries = {scores.token_id: scores.logprob, **dict(scores.top)}
    return {
        str(token_id): {
            "logprob": finite(logprob),
            "rank": ranks.get(token_id),
            "decoded_token": spelling.spell(token_id),
        }
        for token_id, logprob in entries.items()
    }
